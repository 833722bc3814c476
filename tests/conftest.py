"""Setup of all tests: the builders, and tests that run one after another.

With `pytest -n 4` (as `make test` does) the tests of one file, or of one shared control plane, stay
together in one process: module fixtures and planes exist once.
"""

import sys
from pathlib import Path

import pytest
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

from durations import Durations
from effort import PROFILE
from shared_planes import plane_of
from waiting import FACTOR, patience_s

from gangsched.imports import collecting_nothing

settings.load_profile(PROFILE)
# Some users have Python keep no bytecode. Every worker would then compile all tests in every run.
sys.dont_write_bytecode = False

_LONG = ("integration", "test_simulate.py", "simulator", "property")
"""Folders and files of long tests, the longest first."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Let a slow machine take longer, and note how long each test takes."""
    # It ends a process that hangs, and all its tests with it; what waits has deadlines of its own.
    config.option.timeout = patience_s(600)
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations())


def pytest_report_header():
    """Say how patient this run is."""
    return f"deadlines of tests are stretched by {FACTOR:.1f}"


def pytest_collection_modifyitems(config, items):
    """Have the tests of one plane run one after another, and files of short tests at the end."""
    elsewhere = [item for item in items if _proved_elsewhere(item)]
    config.hook.pytest_deselected(items=elsewhere)
    gone = set(elsewhere)
    items[:] = [item for item in items if item not in gone]
    items.sort(key=lambda item: (_turn_of(item), plane_of(item.nodeid)))


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep modules and tests, which stay to the end, out of each collection of garbage."""
    with collecting_nothing():
        return (yield)


def _proved_elsewhere(item) -> bool:
    """Tell whether a test runs through the other way of binding, which is enough for it."""
    wanted = item.get_closest_marker("by")
    plane = plane_of(item.nodeid)
    return bool(wanted) and plane in ("direct", "extender") and plane not in wanted.args


def _turn_of(item) -> int:
    """Long ones begin first: so no process waits for another at the end."""
    if plane_of(item.nodeid):
        return 0
    turns = (turn for turn, folder in enumerate(_LONG, 1) if folder in item.path.parts)
    return next(turns, len(_LONG) + 1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Hand out planes and files in the order they are collected in."""
    from xdist.scheduler import LoadScopeScheduling

    class ByPlane(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return plane_of(nodeid) or nodeid.split("::", maxsplit=1)[0]

    return ByPlane(config, log)
