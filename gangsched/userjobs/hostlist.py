"""Lists of nodes as Slurm writes them: `rack-1-[01-04,07]`."""

import re
from collections.abc import Iterable

_ENDS_IN_NUMBER = re.compile(r"(.*?)(\d{1,15})")


def hostlist(names: Iterable[str]) -> str:
    """Return names with ranges for numbers at their ends."""
    plain: list[str] = []
    numbered: dict[tuple[str, int], list[int]] = {}
    for name in sorted(set(names)):
        match = _ENDS_IN_NUMBER.fullmatch(name)
        if match is None:
            plain.append(name)
            continue
        digits = match[2]
        # Numbers of one width share a range: 9 and 10 only where none has leading zeros.
        width = len(digits) if digits.startswith("0") and len(digits) > 1 else 0
        numbered.setdefault((match[1], width), []).append(int(digits))
    for (stem, width), numbers in numbered.items():
        ranges = [_written(first, last, width) for first, last in _ranges(sorted(numbers))]
        alone = len(numbers) == 1
        plain.append(f"{stem}{ranges[0]}" if alone else f"{stem}[{','.join(ranges)}]")
    return ",".join(sorted(plain))


def _ranges(numbers: list[int]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found


def _written(first: int, last: int, width: int) -> str:
    begin, end = (f"{number:0{width}d}" for number in (first, last))
    return begin if first == last else f"{begin}-{end}"
