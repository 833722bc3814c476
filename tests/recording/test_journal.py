"""The journal: a replay decides the same, and names can be hidden."""

import gzip
import random
from dataclasses import replace
from typing import get_args

import pytest
from builders import node

from gangsched.config import ConfigError
from gangsched.core import facts as f
from gangsched.core.engine.engine import Engine
from gangsched.core.engine.limits import Limits
from gangsched.core.model.constraints import LevelRequest, SliceRequest, Spread
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.pods import GpuShare, PodRequirements
from gangsched.core.model.queues import Preemption, Queue, Quota, Reclaim
from gangsched.core.model.wire_names import recorded_text
from gangsched.core.policy import Policies
from gangsched.core.quota.runtime_history import job_name_prefix
from gangsched.recording.anonymize import Pseudonyms
from gangsched.recording.journal import (
    Journal,
    JournalEntry,
    RecordingEngine,
    entries,
    fact_of,
    name_of,
    placements_of,
    restore,
    write_facts,
)
from gangsched.recording.replay import Replayed, replay
from gangsched.recording.wire import from_wire, to_wire
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack
from policies.shortest import Shortest
from simulator.jobs import GPU, Job
from simulator.virtual.job_run import JobRun

POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())
QUEUES = [
    Queue("all", quotas=(Quota(GPU, 32_000),)),
    Queue("vision", "all", (Quota(GPU, 16_000),), preemption=Preemption(reclaim=Reclaim.ANY)),
    Queue("speech", "all", (Quota(GPU, 16_000),), preemption=Preemption(reclaim=Reclaim.ANY)),
]


def jobs(count: int) -> list[Job]:
    rng = random.Random(1)
    return [
        Job(
            f"train-{number}",
            number * 20.0,
            rng.uniform(50, 400),
            rng.choice((1, 2, 4)),
            rng.choice((2, 4, 8)),
            rng.choice(("vision", "speech")),
            rng.choice(("ann", "bob")),
            estimate_s=rng.uniform(50, 400),
        )
        for number in range(count)
    ]


@pytest.fixture
def journal(tmp_path):
    """Return a journal of a busy hour, in which gangs were stopped for others."""
    path = tmp_path / "journal.jsonl"
    with path.open("w") as file:

        def engine(limits):
            return RecordingEngine(Engine(limits, None), Journal(file))

        nodes = [node(f"gpu-{index}", labels={"rack": f"row-{index % 2}"}) for index in range(4)]
        job_run = JobRun(nodes, jobs(60), POLICIES, QUEUES, engine=engine).run(2000.0)
        assert job_run.preemptions
    return path


def test_the_same_policies_decide_the_same_again(journal):
    done = Replayed()
    assert list(replay(journal, POLICIES, done)) == []
    assert done.plans > 40
    assert done.placed > 40


def test_other_policies_show_where_they_differ(journal):
    done = Replayed()
    found = list(replay(journal, replace(POLICIES, order=Shortest()), done))
    assert found
    assert len({(one.at_s, one.gang) for one in found}) == len(found)
    assert all(one.then != one.now for one in found)
    assert {one.then is None for one in found} == {True, False}


def test_a_scheduler_that_was_killed_leaves_a_journal_that_can_be_read(journal):
    text = journal.read_text()
    journal.write_text(text[:-10])
    assert len(list(entries(journal))) == text.count("\n") - 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ('{"word":"fact","at_s":1,"what":"NodeSeen","data":{}}\n', "line 1: is no journal"),
        ("hello\n", "line 1: JSON is malformed"),
    ],
)
def test_a_file_that_is_not_a_journal_is_an_error(text, said, tmp_path):
    path = tmp_path / "wrong.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigError, match=said):
        restore(path)


def test_a_line_with_a_wrong_value_is_named(journal):
    lines = journal.read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if '"NodeSeen"' in line)
    lines[at] = lines[at].replace('"name":"gpu-', '"name":5,"was":"gpu-')
    journal.write_text("".join(lines))
    with pytest.raises(
        ConfigError, match=r"NodeSeen: Expected `str`, got `int` - at `\$.node.name`"
    ):
        restore(journal)


def test_a_snapshot_is_the_engine_as_it_was(journal, tmp_path):
    before = restore(journal)
    write_facts(tmp_path / "now.jsonl.gz", before)
    after = restore(tmp_path / "now.jsonl.gz")
    assert after.now_s == pytest.approx(before.now_s)
    assert waiting(after) == waiting(before)
    assert waiting(before)
    assert after.engine.view.cluster.used.sum() == before.engine.view.cluster.used.sum() > 0


def waiting(recalled):
    seen = recalled.engine.view.snapshot_all(recalled.now_s)
    return sorted((one.gang.id, len(one.members), one.priority) for one in seen.pending)


def test_hidden_names_reveal_and_change_nothing(journal, tmp_path):
    before = restore(journal)
    before.engine.history.record(gang(before), 77.0)
    path = tmp_path / "hidden.jsonl.gz"
    write_facts(path, before, Pseudonyms())
    with gzip.open(path, "rt") as file:
        text = file.read()
    for name in ("vision", "speech", "ann", "bob", "train", "gpu-0", "row-1", "ns/"):
        assert f'"{name}' not in text, name
    after = restore(path)
    assert len(waiting(after)) == len(waiting(before))
    assert after.engine.view.cluster.used.sum() == before.engine.view.cluster.used.sum()
    # The runs of one job are still told from others: what was learnt of them holds.
    (key,) = after.engine.history.runs
    users = {one.spec.user for one in after.engine.view.gangs.values() if one.spec is not None}
    assert key[0] in users
    assert any(job_name_prefix(one) == key[1] for one in after.engine.view.gangs)


def gang(recalled):
    state = recalled.engine.view.gangs[GangId(next(iter(recalled.engine.view.gangs)))]
    assert state.spec is not None
    return state.spec


def test_the_names_of_facts_in_journals_are_those_of_the_format():
    """A journal of an earlier release is read, whatever the classes are called today."""
    assert {name_of(kind) for kind in get_args(f.Fact)} == {
        "NodeSeen", "NodeGone", "TopologySeen", "TopologyGone", "QueueSeen", "QueueGone",
        "BookingSeen", "BookingGone", "NamespaceQuotaSeen", "NamespaceQuotaGone", "BudgetsSeen",
        "NodeSupplySeen",
        "GpuTimeSeen", "GangSeen", "GangGone", "JobEnded", "PodSeen", "PodGone",
        "ReservationSeen", "PastSeen", "StoppedSeen", "EndRestored", "Prepared", "PrepareFailed",
        "Bound", "BindFailed", "PlanFailed",
    }  # fmt: skip
    restored = JournalEntry("fact", 0.0, "ReservationSeen", {"gang": "ns/g", "assignments": []})
    assert fact_of(restored) == f.AssignmentsRestored(GangId("ns/g"), ())


BEFORE = {
    "requests": [["cpu", 1000], ["nvidia.com/gpu", 1]],
    "beyond": ["pod affinity"],
    "share": {"milli": 0, "memory_mib": 0, "devices": 1},
}
"""What a pod asks for in a journal of the first release."""


def test_a_journal_keeps_the_field_names_of_its_first_release():
    near = {"required": "rack", "preferred": None, "slices": [{"level": "rack", "size": 2}]}
    constraints = {"near": near, "spread": [{"level": "zone", "most": 3}], "gpu_kinds": ["H100"]}
    role = {"name": "w", "count": 2, "min_count": 2, "needs": BEFORE, "near": near}
    data = {"gang": {"id": "ns/g", "min_member": 2, "roles": [role], "constraints": constraints}}
    fact = fact_of(JournalEntry("fact", 1.0, "GangSeen", data))
    (read,) = fact.gang.roles
    assert read.needs.unmodelled_constraints == ("pod affinity",)
    assert fact.gang.constraints.gpu_types == ("H100",)
    assert fact.gang.constraints.spread == (Spread("zone", 3),)
    written = to_wire(fact)["gang"]
    assert written["constraints"] | constraints == written["constraints"]
    assert written["roles"][0]["needs"] | BEFORE == written["roles"][0]["needs"]
    assert fact_of(JournalEntry("fact", 1.0, "GangSeen", to_wire(fact))) == fact
    quota = {"resource": "nvidia.com/gpu", "nominal": 8000, "kind": "H100"}
    data = {"queue": {"name": "q", "quotas": [quota], "firm_loans": True}}
    queue = fact_of(JournalEntry("fact", 1.0, "QueueSeen", data))
    assert queue.queue.non_preemptible_may_borrow
    assert to_wire(queue)["queue"]["firm_loans"] is True
    assert queue.queue.quotas == (Quota("nvidia.com/gpu", 8000, "H100"),)
    assert to_wire(queue)["queue"]["quotas"] == [quota | {"borrowing": None, "lending": None}]


def test_a_restart_and_a_gate_keep_the_names_of_their_first_release():
    past = {
        "gang": "ns/g", "since_s": 1.0, "attained_s": 2.0, "not_before_s": 3.0,
        "avoid": [["n", 4.0]], "most_per_node": 5, "most_until_s": 6.0, "given_up": "late",
        "held_back": True, "promised_s": 7.0, "promised": [["p", "n"]],
    }  # fmt: skip
    restored = fact_of(JournalEntry("fact", 1.0, "PastSeen", past))
    assert restored == f.HistoryRestored(
        GangId("ns/g"), created_s=1.0, attained_service_s=2.0, backoff_until_s=3.0,
        excluded_nodes=((NodeName("n"), 4.0),), pods_per_node_max=5, pods_per_node_until_s=6.0,
        failure_message="late", waits_for_capacity=True, reserved_start_s=7.0,
        reserved_nodes=((PodName("p"), NodeName("n")),),
    )  # fmt: skip
    pod = {
        "uid": "u",
        "name": "p",
        "needs": to_wire(PodRequirements()),
        "held_by": "example.com/gate",
    }
    gated = fact_of(JournalEntry("fact", 1.0, "PodSeen", pod))
    assert gated.gated_by == "example.com/gate"
    used = {"queue": "q", "user": "u", "at_s": 1.0, "decayed": 2.0}
    counted = fact_of(JournalEntry("fact", 1.0, "GpuTimeSeen", used))
    assert counted == f.UsageRestored("q", "u", 1.0, 2.0)
    for fact, data in ((restored, past), (gated, pod), (counted, used)):
        assert to_wire(fact) | data == to_wire(fact)
    placed = JournalEntry("plan", 1.0, data={"ns/g": {"nodes": [["p", "n"]], "gpu_kind": "H100"}})
    (placement,) = placements_of(placed).values()
    assert placement.gpu_type == "H100"
    assert to_wire(placement)["gpu_kind"] == "H100"


def test_the_limits_of_a_journal_keep_the_names_of_its_first_release(tmp_path):
    limits = {
        "barrier_s": 61.0, "backoff_s": 2.0, "backoff_max_s": 62.0, "avoid_s": 63.0,
        "repartition_s": 64.0, "advice_s": 31.0, "replan_s": 11.0, "patrol_s": 0.3,
        "ready_tries": 6,
    }  # fmt: skip
    read = from_wire(limits, Limits)
    assert (read.schedule_timeout_s, read.node_exclusion_s, read.advice_ttl_s) == (61.0, 63.0, 31.0)
    assert (read.retry_interval_s, read.report_interval_s, read.ready_tries) == (11.0, 0.3, 6)
    path = tmp_path / "journal.jsonl"
    with path.open("w") as file:
        Journal(file).begin(Engine(read), 0.0)
    (start,) = entries(path)
    assert start.data["limits"] == limits
    assert restore(path).engine.limits == read


def test_a_checksum_is_of_the_names_of_the_first_release():
    wants = PodRequirements((("cpu", 1000),), unmodelled_constraints=("x",), share=GpuShare(500))
    near = LevelRequest(slices=(SliceRequest("rack", 2),))
    assert recorded_text((wants, near)) == (
        "(PodNeeds(requests=(('cpu', 1000),), selector=(), required=(), preferred=(), "
        "tolerations=(), host_ports=(), beyond=('x',), "
        "share=Share(milli=500, memory_mib=0, devices=1)), "
        "Near(required=None, preferred=None, slices=(Slices(level='rack', size=2),)))"
    )
