"""Breaks the core in one place at a time, and lists which tests see it: `make mutations`.

    python tests/mutations.py            # every sample
    python tests/mutations.py holds      # those whose file or words contain this

Each sample is a line of `gangsched/core` or `policies` and what stands there instead
(mutation_samples.py). The fast tests run on a copy of the tree, those first that saw it before.
Exit 1 where nothing saw one, 2 where a line to break is not there any more.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FAST = ("tests/core", "tests/policies", "tests/property")
COPIED = ("gangsched", "policies", "simulator", "tests", "docs", "examples", "bench", "crds")
COPIED += ("manifests", "pyproject.toml", "README.md", "Makefile")
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Sample:
    """A line that is there once in its file, and what breaks it; `first` are tests that see it."""

    what: str
    file: str
    old: str
    new: str
    first: str = ""


class StaleError(Exception):
    """A sample's line is not in its file once."""


class UnsoundError(Exception):
    """A test fails although nothing is broken."""


def broken(text: str, sample: Sample) -> str:
    """Return a file's text with a sample's line broken; the indentation stays.

    Raises:
        StaleError: the line is not there, or more than once.

    """
    lines = text.splitlines(keepends=True)
    found = [at for at, line in enumerate(lines) if line.strip() == sample.old]
    if len(found) != 1:
        said = f"{sample.file}: the line {sample.old!r} is there {len(found)} times, not once"
        raise StaleError(f"{said}: mend tests/mutation_samples.py")
    (at,) = found
    lines[at] = lines[at].replace(sample.old, sample.new)
    return "".join(lines)


def seen_by(copy: Path, tests: tuple[str, ...]) -> str:
    """Run tests in a copy of the tree until one fails; return which, or nothing."""
    environment = os.environ | {"PYTHONPATH": str(copy)}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", *tests]
    command += ["-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, check=False
    )
    if not done.returncode:
        return ""
    failed = _FAILED.search(done.stdout)
    return failed[1] if failed else f"pytest ended with {done.returncode}: {done.stdout[-500:]}"


class Tree:
    """A copy of the checkout, in which one place at a time is broken."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sound: set[tuple[str, ...]] = set()
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                skipped = shutil.ignore_patterns("__pycache__")
                shutil.copytree(source, folder / name, ignore=skipped)
            else:
                shutil.copy2(source, folder / name)

    def tried(self, sample: Sample) -> str:
        """Break one place, and mend it again; return which test saw it."""
        return (self._seen(sample, (sample.first,)) if sample.first else "") or self._seen(
            sample, FAST
        )

    def _seen(self, sample: Sample, tests: tuple[str, ...]) -> str:
        """Return which of some tests sees what is broken; where nothing is, all of them pass.

        Raises:
            UnsoundError: one of them fails anyway.

        """
        if tests not in self._sound:
            failed = seen_by(self._folder, tests)
            if failed:
                raise UnsoundError(failed)
            self._sound.add(tests)
        file = self._folder / sample.file
        whole = file.read_text()
        file.write_text(broken(whole, sample))
        try:
            return seen_by(self._folder, tests)
        finally:
            file.write_text(whole)


def main() -> int:
    """Try the samples that the command line names."""
    from mutation_samples import SAMPLES

    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    chosen = [one for one in SAMPLES if wanted in f"{one.file} {one.what}"]
    try:
        for one in SAMPLES:
            broken((ROOT / one.file).read_text(), one)
    except StaleError as error:
        print(error)
        return 2
    survived = 0
    with tempfile.TemporaryDirectory(prefix="mutations-") as folder:
        tree = Tree(Path(folder))
        for number, one in enumerate(chosen, 1):
            try:
                test = tree.tried(one)
            except UnsoundError as error:
                print(f"nothing is broken, and {error} fails all the same")
                return 2
            survived += not test
            print(f"{number:2}/{len(chosen)}  {one.what}", flush=True)
            print(f"       {test or 'SURVIVED: no test sees it'}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} are seen")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
