"""What holds for every test: the builders, and which tests run one after another.

With `pytest -n 2 --dist loadgroup` (as `make test` does) the tests of one file, or of one shared
control plane, stay together: module fixtures and planes exist once.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

PLANES = ("cluster", "laptop")
"""Fixtures of planes that several files share."""


def pytest_collection_modifyitems(items):
    """Have the tests of one plane run together, and in one process."""
    items.sort(key=_plane_of)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_plane_of(item) or item.path.stem))


def _plane_of(item) -> str:
    """Return which shared plane a test needs, if any."""
    found = next((name for name in PLANES if name in getattr(item, "fixturenames", ())), "")
    call = getattr(item, "callspec", None)
    return str(call.params.get(found, found)) if call is not None else found
