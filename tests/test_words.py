"""The glossary of docs/ARCHITECTURE.md has one word for an idea: the words it replaces go away.

Each word stands here with how often sources and pages still have it. A change may lower a number
and never raises one: `make words` writes down what is left.
"""

import ast
import json
import re
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("gangsched", "policies", "simulator")
LEFT = Path(__file__).with_name("words.json")
INSTEAD = {
    "alike": "of one equivalence class",
    "anew": "again, or what becomes of it",
    "counsel": "advice",
    "custody": "allocations",
    "everybody": "every gang, every user",
    "heard": "received, observed",
    "hears": "receives, observes",
    "loan": "borrowed quota",
    "loans": "borrowed quota",
    "nobody": "no gang, no user",
    "outlook": "context",
    "promise": "backfill reservation",
    "promised": "reserved",
    "promises": "backfill reservations",
    "room": "free capacity, assignment",
    "somebody": "a gang, a user",
    "tell": "return whether, report, distinguish",
    "tells": "reports, says",
    "told": "reported, declared",
    "vacancy": "freed capacity",
    "whoever": "the gang or user that",
    "whom": "which gang",
    "whose": "with, of which",
}
"""What to write in place of a word of the glossary's "never" column."""


@cache
def counted() -> Counter[str]:
    """Count the words in sources and pages; names count by their parts."""
    found: Counter[str] = Counter()
    sources = [
        p for name in ("gangsched", "policies", "simulator") for p in (ROOT / name).rglob("*.py")
    ]
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for path in (*sources, *pages):
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", path.read_text()).replace("_", " ").lower()
        found.update(word for word in re.findall(r"[a-z]+", words) if word in INSTEAD)
    return found


@pytest.mark.parametrize("word", INSTEAD)
def test_a_word_that_the_glossary_replaces_does_not_come_back(word):
    left = json.loads(LEFT.read_text())[word]
    now = counted()[word]
    assert now <= left, f"{word!r}: {now} times, {left} before; write {INSTEAD[word]}"


def test_no_two_classes_have_one_name():
    modules = Counter(
        node.name
        for folder in SOURCES
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    shared = {name for name, count in modules.items() if count > 1}
    assert not shared, "one name is one thing: name the other thing"


if __name__ == "__main__":
    before = json.loads(LEFT.read_text()) if LEFT.exists() else {}
    fewer = {word: min(counted()[word], before.get(word, sys.maxsize)) for word in sorted(INSTEAD)}
    LEFT.write_text(json.dumps(fewer, indent=2) + "\n")
