"""Writes the table of bounds in docs/operations.md (`make bounds`) from the module of bounds."""

import sys
from pathlib import Path

from gangsched.config import SchedulerConfig
from gangsched.core.bounds import BOUNDS, UpperBound

PAGE = Path(__file__).parent / "operations.md"
BEGIN, END = "<!-- written by docs/bounds.py -->\n", "<!-- end of what docs/bounds.py writes -->\n"


def number(value: int) -> str:
    """Return a number as text: a large power of two as 2^n, others with commas."""
    power = value.bit_length() - 1
    return f"2^{power}" if power > 20 and value == 1 << power else f"{value:,}"


def row(bound: UpperBound) -> str:
    """Return the row of one bound."""
    if bound.setting:
        assert bound.setting in SchedulerConfig.model_fields, f"there is no {bound.setting}"
    setting = f"`{bound.setting}`" if bound.setting else ""
    return f"| {number(bound.most)} | {bound.what} | {bound.reason} | {setting} |\n"


def table() -> str:
    """Return the table of all bounds."""
    head = "| at most | of what | why | setting |\n|---:|---|---|---|\n"
    return head + "".join(map(row, BOUNDS.values()))


def written(page: str) -> str:
    """Return the page with the present table."""
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    target = Path(sys.argv[1]) if sys.argv[1:] else PAGE
    target.write_text(written(PAGE.read_text()))
