"""What holds for every test: the builders, and which tests run one after another.

With `pytest -n 3` (as `make test` does) the tests of one file, or of one shared control plane, stay
together in one process: module fixtures and planes exist once.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from audited import AUDIT

_SHARED = re.compile(r"\[(direct|extender)\b")
"""In the names of tests: which of the shared planes they need."""


def pytest_sessionstart(session):
    """Forget what earlier sessions noted, unless that is what is tested."""
    if not hasattr(session.config, "workerinput") and "AUDITED" not in os.environ:
        shutil.rmtree(AUDIT, ignore_errors=True)


def pytest_collection_modifyitems(items):
    """Have the tests of one plane run one after another, and files of short tests at the end."""
    items.sort(key=lambda item: (_turn_of(item), _plane_of(item.nodeid)))


def _turn_of(item) -> int:
    """Long ones begin first: so no process waits for another at the end."""
    if _plane_of(item.nodeid):
        return 0
    return 1 if "integration" in item.path.parts else 2


def _plane_of(nodeid: str) -> str:
    found = _SHARED.search(nodeid)
    return found[1] if found else ""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand out planes and files in the order they are collected in."""
    from xdist.scheduler import LoadScopeScheduling

    class ByPlane(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _plane_of(nodeid) or nodeid.split("::", maxsplit=1)[0]

    return ByPlane(config, log)
