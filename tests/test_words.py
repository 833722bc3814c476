"""The glossary of docs/ARCHITECTURE.md has one word for an idea, and one name is one thing."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = ("gangsched", "policies", "simulator")
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


_STORED = "stored objects, records and clients have this name"
_FORMER = "the former name, which plugins may read for one more release"
STAYS = {
    ("alike", "gangsched/core/model/__init__.py"): _FORMER,
    ("alike", "gangsched/core/model/gangs.py"): _FORMER,
    ("loans", "gangsched/core/model/wire_names.py"): _STORED,
    ("nobody", "docs/operations.md"): "alerts that administrators may silence have this name",
    ("nobody", "gangsched/core/model/__init__.py"): _FORMER,
    ("promised", "gangsched/recording/wire.py"): _STORED,
    ("promises", "gangsched/core/snapshot.py"): _FORMER,
    ("room", "gangsched/core/model/refusal.py"): _STORED,
    ("room", "gangsched/core/placement/choosers.py"): _FORMER,
    ("room", "gangsched/jobs/common/waiting.py"): _STORED,
    ("tell", "gangsched/operators/search/suggestion.py"): "scikit-optimize has this name",
    ("tell", "gangsched/operators/search/evolution.py"): "the library cmaes has this name",
    ("told", "gangsched/cli/output/tables.py"): _STORED,
    ("told", "gangsched/cli/queries.py"): _STORED,
}
"""Where a replaced word stays, and why."""

VERBS = frozenset(
    {
        "build",
        "check",
        "describe",
        "explain",
        "load",
        "main",
        "merge",
        "parse",
        "read",
        "reconcile",
        "render",
        "replay",
        "restart",
        "run",
        "what_if",
        "write",
    }
)
"""Verbs of functions in two modules: the module says of what, or a command is named after them."""


_DEFINED = re.compile(r"^(?:async def|def|class) ([^\W_]\w*)", re.MULTILINE)
"""The public names of a module."""


@cache
def places() -> frozenset[tuple[str, str]]:
    """Return the words in sources and pages, each with its file; names count by their parts."""
    sources = [p for folder in SOURCES for p in (ROOT / folder).rglob("*.py")]
    pages = [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    found: set[tuple[str, str]] = set()
    for path in (*sources, *pages):
        words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", path.read_text()).replace("_", " ").lower()
        name = str(path.relative_to(ROOT))
        found.update((word, name) for word in re.findall(r"[a-z]+", words) if word in INSTEAD)
    return frozenset(found)


@pytest.mark.parametrize("word", INSTEAD)
def test_a_word_that_the_glossary_replaces_does_not_come_back(word):
    files = {file for found, file in places() if found == word}
    stays = {file for found, file in STAYS if found == word}
    assert files - stays == set(), f"{word!r}: write {INSTEAD[word]}"
    assert stays - files == set(), "take it off the list"


def test_no_two_public_names_are_one():
    """Functions that a module is called for (`journal.read`) may share a verb."""
    modules: Counter[str] = Counter()
    for folder in SOURCES:
        for path in (ROOT / folder).rglob("*.py"):
            modules.update(_DEFINED.findall(path.read_text()))
    shared = {name for name, count in modules.items() if count > 1}
    assert shared - VERBS == set(), "one name is one thing: name the other thing"
    assert VERBS - shared == set(), "take it off the list"
