"""What holds for every test: the builders, and which tests run one after another.

With `pytest -n 2` (as `make test` does) the tests of one file, or of one shared control plane, stay
together in one process: module fixtures and planes exist once.
"""

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

_SHARED = re.compile(r"\[(direct|extender)\b")
"""In the names of tests: which of the shared planes they need."""


def pytest_collection_modifyitems(items):
    """Have the tests of one plane run one after another."""
    items.sort(key=lambda item: _plane_of(item.nodeid))


def _plane_of(nodeid: str) -> str:
    found = _SHARED.search(nodeid)
    return found[1] if found else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand out planes and files, the largest first."""
    from xdist.scheduler import LoadScopeScheduling

    class ByPlane(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _plane_of(nodeid) or nodeid.split("::", maxsplit=1)[0]

    return ByPlane(config, log)
