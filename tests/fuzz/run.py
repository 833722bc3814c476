"""`PYTHONPATH=tests python tests/fuzz/run.py MINUTES [SEED]`: invalid input for all decoders.

Prints what it tried as it goes; the first failure ends it, with the target, the seed and the bytes.
The trying is done by a process of its own: one that hangs, or takes all memory, ends that process.
"""

import logging
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutate import bad
from targets import FREE, targets
from watched import arm, bound_memory, disarm, tried

_SLICE_S = 2.0
_SHOWN = 4_000
_TOGETHER = 50
"""Inputs that share one deadline: small ones take a moment each."""

_SIZED = 0.01


def fuzz(name: str, target, documents, seed: int, until_s: float, folder: Path) -> int:
    """Try bad input on a target until a moment; return how often."""
    rng = random.Random(f"{name} {seed}")
    count = 0
    while time.monotonic() < until_s:
        raw = bad(rng.choice(documents), rng, free=name in FREE, sized=_SIZED)
        if count % _TOGETHER == 0:
            last = count + _TOGETHER - 1
            (folder / "at").write_text(f"{name}, seed {seed}, numbers {count} to {last}")
            arm()
        try:
            tried(target, raw, folder / "input")
        except Exception as error:
            shown = raw if len(raw) < _SHOWN else raw[:_SHOWN] + b"..."
            raise AssertionError(f"{name}, seed {seed}, number {count}: {shown!r}") from error
        count += 1
    return count


def work(minutes: float, seed: int, folder: Path) -> None:
    """Fuzz for so many minutes."""
    until_s = time.monotonic() + minutes * 60
    logging.disable()  # every bad object is a warning
    bound_memory()
    total: dict[str, int] = {}
    while time.monotonic() < until_s:
        for name, (target, documents) in targets(folder).items():
            slice_s = time.monotonic() + _SLICE_S
            total[name] = total.get(name, 0) + fuzz(name, target, documents, seed, slice_s, folder)
        disarm()
        seed += 1
        print(f"seed {seed}: {sum(total.values())} inputs", flush=True)
    for name, count in total.items():
        print(f"{name:40} {count:>10}")


def main() -> None:
    """Have a process fuzz; where it ends badly, say at which input."""
    minutes = sys.argv[1] if len(sys.argv) > 1 else "1"
    seed = sys.argv[2] if len(sys.argv) > 2 else str(int(time.time()))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, minutes, seed, folder]
        code = subprocess.run(command, check=False).returncode
        if code:
            at = (Path(folder) / "at").read_text()
            large = Path(folder) / "input"
            kept = Path("build") / "fuzz-input"
            kept.parent.mkdir(exist_ok=True)
            kept.write_bytes(large.read_bytes() if large.exists() else b"")
            sys.exit(f"it ended with {code} at: {at}; the last large input is in {kept}")


if __name__ == "__main__":
    if len(sys.argv) > 3:
        work(float(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
