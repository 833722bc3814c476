"""Attacks of a tenant that once worked, and no longer do."""

import pytest
from hostile_findings import FINDINGS
from waiting import patience_s

from simulator.hostile.worker import HistoryWorker

QUICK_S = 20.0


@pytest.fixture(scope="module")
def worker():
    """Return a process that lives through one history after the other."""
    with HistoryWorker(patience_s(QUICK_S)) as made:
        yield made


@pytest.mark.parametrize("name", FINDINGS)
def test_an_attack_harms_no_other_tenant(worker, name):
    assert worker.run(FINDINGS[name])["violations"] == []
