"""`PYTHONPATH=tests python tests/fuzz/run.py MINUTES [SEED]`: bad input for all readers of input.

Prints what it tried as it goes; the first failure ends it, with the target, the seed and the bytes.
"""

import logging
import random
import sys
import tempfile
import time
from pathlib import Path

from mutate import bad
from targets import FREE, targets

_SLICE_S = 2.0


def fuzz(name: str, target, documents, seed: int, until_s: float) -> int:
    """Try bad input on a target until a moment; return how often."""
    rng = random.Random(f"{name} {seed}")
    count = 0
    while time.monotonic() < until_s:
        raw = bad(rng.choice(documents), rng, free=name in FREE)
        try:
            target(raw)
        except Exception as error:
            shown = raw if len(raw) < 4000 else raw[:4000] + b"..."
            raise AssertionError(f"{name}, seed {seed}, number {count}: {shown!r}") from error
        count += 1
    return count


def main() -> None:
    """Fuzz for so many minutes."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int(time.time())
    until_s = time.monotonic() + minutes * 60
    logging.disable()  # every bad object is a warning
    total: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < until_s:
            for name, (target, documents) in targets(Path(folder)).items():
                tried = fuzz(name, target, documents, seed, time.monotonic() + _SLICE_S)
                total[name] = total.get(name, 0) + tried
            seed += 1
            print(f"seed {seed}: {sum(total.values())} inputs", flush=True)
    for name, count in total.items():
        print(f"{name:40} {count:>10}")


if __name__ == "__main__":
    main()
