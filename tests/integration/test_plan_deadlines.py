"""A policy that never returns for one gang ends the process once; all other gangs start."""

import json

import pytest
from refitted import BOTH, leader_and_standby
from test_faults import wait_reason
from waiting import patience_s

PLACER = """
from policies.cpsat import Cpsat


class Endless(Cpsat):
    def place(self, waiting, snapshot):
        while waiting.gang.id.endswith("/endless"):
            pass
        return super().place(waiting, snapshot)
"""


@pytest.fixture
def pair(cluster, tmp_path, monkeypatch):
    """Have two schedulers with such a placer, from a package of its own."""
    (tmp_path / "endless.py").write_text(PLACER)
    installed = tmp_path / "endless-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: endless\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[gangsched.placers]\nendless = endless:Endless\n")
    settings = tmp_path / "settings.yaml"
    # Nobody waits for a long Lease to end: whoever ends by a plan gives it back.
    settings.write_text(
        f"placer: endless\nplan_deadline_s: {patience_s(1)}\nlease_s: {patience_s(15)}\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with leader_and_standby(cluster, settings, operators=False):
        yield cluster


def running(pair) -> set[str]:
    """Return which processes run."""
    return {name for name in BOTH if pair.plane.programs.get(name).alive()}


@pytest.mark.by("direct")  # a standby needs it
def test_one_gang_ends_a_process_once_and_the_others_start(pair, namespace):
    home = namespace
    assert running(pair) == set(BOTH)
    pair.gang(home, "endless", 1, gpus=3)
    pair.wait(lambda: len(running(pair)) == 1, "the leader to end by it", 60)
    (left,) = running(pair)
    pair.gang(home, "good", 2)
    pair.wait_placed(home, "good-", 2, 60)  # by the other
    said = f"planning did not end within {patience_s(2):g} s"
    wait_reason(pair, home, "PlanFailed", "endless", said)
    kept = pair.json("configmap", "gangsched-history", "-n", "gangsched-system")["data"]
    ((entry,),) = [json.loads(kept["set-aside.json"])["gangs"].values()]
    assert entry["who"] == f"{home}/endless"
    # After a restart it is still set aside.
    pair.restart(left)
    pair.gang(home, "later", 1)
    pair.wait_placed(home, "later-", 1, 60)
    assert pair.condition(home, "endless")["reason"] == "PlanFailed"
    assert running(pair) == {left}
    # Made anew under another name it is still the same request.
    pair.gang(home, "again", 1, gpus=3)
    pair.wait_event(home, "PlanFailed", f"gang {home}/endless has an equal request", "again")
