"""Stored journals lead to the same orders, log lines and audit lines as today."""

import io
import os
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from golden import MODE, agrees, store, stored
from histories import ASKS, RECORDED, WORDS, history, path_of, policies_of
from recording import record

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.recording.journal import name_of


@pytest.fixture(scope="module", autouse=True)
def recorded():
    """Record the journals again, where that is asked for."""
    if MODE == "record":
        for name, (seed, _) in RECORDED.items():
            file = io.StringIO()
            record(seed, policies_of(name), file, *ASKS.get(name, ()))
            store(path_of(name).name, file.getvalue())


@pytest.mark.parametrize("name", RECORDED)
def test_what_a_journal_leads_to_is_the_same_again(name):
    found = history(name)
    agrees(f"orders-{name}.txt.gz", "\n".join(found.orders) + "\n")


@pytest.mark.parametrize("name", RECORDED)
def test_the_lines_that_are_written_are_those_that_were_read(name):
    found = history(name)
    agrees(path_of(name).name, found.journal.getvalue())


@pytest.mark.parametrize("name", RECORDED)
def test_the_audit_trail_of_a_history_is_the_same_again(name):
    agrees(f"audit-{name}.jsonl.gz", history(name).audit.getvalue())


def test_every_fact_and_every_order_is_covered():
    facts = {what for name in RECORDED for what in history(name).facts}
    # The journals are older than these, which have tests of their own.
    later = {"EndRestored", "JobEnded", "NodeSupplySeen"}
    assert facts | later == {name_of(kind) for kind in get_args(f.Fact)}
    kinds = {what for name in RECORDED for what in history(name).kinds}
    assert set(WORDS) == set(get_args(o.Order))
    assert kinds == set(WORDS.values())
    said = {what for name in RECORDED for what in stored(f"audit-{name}.jsonl.gz").split('"')}
    assert said >= {"Stopped", "PodDeleted", "QueueSeen", "QueueChanged", "QueueDeleted"}
    assert said >= {"ReservationSeen", "ReservationChanged", "ReservationDeleted"}


def test_another_process_with_another_hash_seed_orders_the_same():
    name = min(RECORDED, key=lambda one: path_of(one).stat().st_size)
    program = f"from histories import history; print('\\n'.join(history({name!r}).orders))"
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(here.parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == stored(f"orders-{name}.txt.gz")
