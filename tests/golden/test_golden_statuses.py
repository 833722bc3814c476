"""Statuses and Events of gangs, external groups, queues and administrators' objects.

They are what users read and what operators of others wait for; an earlier process's are read back.
"""

import asyncio
import contextlib
import json
from types import SimpleNamespace

import pytest
from builders import an_engine, gang, needs, node, plan, pod, templated
from golden import agrees
from waiting import until_async

from gangsched.api import timestamps
from gangsched.core import facts as f
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.queues import AdvanceReservation, GpuBudget, Queue, Quota
from gangsched.core.model.refusal import NearMiss, Reason, Refusal, Remedy
from gangsched.core.model.runtime import EstimateSource
from gangsched.core.model.topology import Fabric, Level, Topology
from gangsched.core.orders import Release, Report, Reserve
from gangsched.core.planning.forecast import Prediction
from gangsched.core.snapshot import BackfillReservation
from gangsched.kube.decoding.external import groups
from gangsched.kube.status import podgroup_status, queue_status, topology_status
from gangsched.kube.status.events import ObjectRef
from gangsched.kube.status.podgroup_status import PodGroupStatusWriter
from gangsched.kube.status.queue_status import QueueStatusWriter
from gangsched.kube.status.topology_status import TopologyStatusWriter

G = GangId("ns/g")
NOW_S = 1_767_225_600.0


class Api:
    """An API server that writes down what is asked of it."""

    def __init__(self) -> None:
        self.asked: list[dict] = []

    async def patch(self, path, body, merge="") -> bytes:
        self.asked.append({"patch": path, "as": merge, "body": body})
        return b"{}"

    async def create(self, path, body) -> bytes:
        self.asked.append({"create": path, "body": body})
        return b"{}"


@pytest.fixture(autouse=True)
def _at_one_moment(monkeypatch):
    monkeypatch.setattr(timestamps, "time", SimpleNamespace(time=lambda: NOW_S))
    passing = dict.fromkeys(podgroup_status._PASSING_S, 0.0)
    monkeypatch.setattr(podgroup_status, "_PASSING_S", passing)


def lines(found) -> str:
    """Return what was asked as text, one object a line."""
    return "".join(json.dumps(one, sort_keys=True) + "\n" for one in found)


REMEDIES = (
    Remedy("level", 'topology.required "zone" in place of "rack"'),
    Remedy("members", "at most 3 members"),
    Remedy("wait", "ns/other ends", NOW_S + 600.0),
    Remedy("move", "moving ns/small to n2"),
)
NEAREST = NearMiss("n7", (("nvidia.com/gpu", 2), ("memory", 2**30)))


def refused(reason: Reason, **more) -> Report:
    why = f"the reason is {reason.value} [of gang g]."
    return Report(G, "Pending", reason.value, why, Refusal(G, reason, why, **more), queue="team")


REPORTS: dict[str, tuple[Report | Reserve | Release, ...]] = {
    **{f"refused {reason.value}": (refused(reason),) for reason in Reason},
    "refused with all that is known": (
        refused(
            Reason.NOT_ENOUGH_FREE,
            role="w",
            wanted=4,
            possible=3,
            near_miss=NEAREST,
            remedies=REMEDIES,
            starts_s=NOW_S + 900.0,
        ),
    ),
    "refused, not proved": (refused(Reason.TOPOLOGY, proved=False, wanted=2),),
    "reserved": (
        Reserve(G, ((PodName("ns/g-w-0"), NodeName("n1")), (PodName("ns/g-w-1"), NodeName("n2")))),
        Report(G, "Reserved", "Reserved", "Capacity for 2 pods is reserved on 2 nodes."),
    ),
    "reserved, then placed": (
        Reserve(G, ((PodName("ns/g-w-0"), NodeName("n1")),)),
        Report(
            G, "Placed", "Placed", "all 1 pod of the gang is bound.", proof="proved", queue="team"
        ),
    ),
    "released": (
        Reserve(G, ((PodName("ns/g-w-0"), NodeName("n1")),)),
        Release(G),
        Report(
            G, "Pending", "Broken", "node n1 went away before the gang had started.", queue="team"
        ),
    ),
    "binding": (Report(G, "Binding", "Binding", "2 pods are at the barrier."),),
    "met": (Report(G, "Placed", "Placed", "all 2 pods of the gang are bound.", adopted=True),),
    "below": (Report(G, "Placed", "BelowMinimum", "1 of at least 2 members run."),),
    "preempted": (Report(G, "Pending", "Preempted", "preempted by gang ns/other (Reclaim)."),),
    "shrunk": (Report(G, "Placed", "Shrunk", "gives 2 surplus pods back."),),
    "long": (Report(G, "Pending", "Broken", "word " * 300),),
}
OURS = ObjectRef("gangsched.io/v1beta1", "PodGroup", "ns", "g", "u", has_status=True)
OWNED = ObjectRef("gangsched.io/v1beta1", "PodGroup", "ns", "g", "u", has_status=True, owned=True)
ONE_POD = ObjectRef("v1", "Pod", "ns", "g", "u")
THEIRS = [
    ObjectRef(kind.api_version, kind.kind, "ns", "g", "u", external_kind=kind)
    for kind in groups.KINDS
]


async def told(subject: ObjectRef, reports, pods=(2, 0, 0)) -> list[dict]:
    """Return what is written of a gang that these are said of, one after another."""
    api = Api()
    made = PodGroupStatusWriter(api, lambda _: (2, pods))
    made.subject(G, subject)
    running = asyncio.create_task(made.run())
    for report in reports:
        before = len(api.asked)
        made.apply(report)
        if isinstance(report, Report):
            await until_async(lambda n=before: len(api.asked) > n or running.done(), "a write")
            await quiet(api)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return api.asked


async def quiet(api: Api) -> None:
    """Wait until nothing more is asked while all other tasks had their turns."""
    seen = -1
    while seen != len(api.asked):
        seen = len(api.asked)
        for _ in range(20):
            await asyncio.sleep(0)


async def test_what_is_written_of_our_groups():
    found = []
    for what, reports in REPORTS.items():
        found += [{"said": what}, *await told(OURS, reports)]
    for subject in (OWNED, ONE_POD):
        found += [{"said of": subject.kind, "owned": subject.owned}]
        found += await told(subject, REPORTS["below"])
    agrees("statuses.jsonl.gz", lines(found))


async def test_what_is_written_of_groups_of_others():
    found = []
    stories = {
        "refused NotEnoughFree": (2, 0, 0),
        "refused BeyondPlanner": (0, 0, 0),
        "below": (1, 0, 0),
        "reserved, then placed": (2, 0, 0),
        "binding": (0, 0, 0),
        "met": (0, 2, 0),
        "preempted": (0, 1, 1),
    }
    for subject in THEIRS:
        for what, pods in stories.items():
            found.append({"said": what, "of": subject.api_version})
            made = await written_once(subject, REPORTS[what], pods)
            found += made
    agrees("statuses-of-others.jsonl.gz", lines(found))


async def written_once(subject: ObjectRef, reports, pods) -> list[dict]:
    """Return what is written, be it nothing, as some kinds are of some words."""
    api = Api()
    made = PodGroupStatusWriter(api, lambda _: (2, pods))
    made.subject(G, subject)
    for report in reports:
        made.apply(report)
    running = asyncio.create_task(made.run())
    for _ in range(3):
        await quiet(api)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    return api.asked


async def test_when_a_gang_starts_and_what_is_wrong_with_it():
    api = Api()
    made = PodGroupStatusWriter(api, lambda _: (2, (0, 0, 0)))
    made.subject(G, OURS)
    made.apply(REPORTS["refused NotEnoughFree"][0])
    late_s = NOW_S + 3e9
    one = Prediction(G, 2, late_s, late_s - 60, late_s + 60, EstimateSource.LEARNED)
    made.predict({G: one}, {G: BackfillReservation(G, late_s + 120, ())})
    running = asyncio.create_task(made.run())
    await quiet(api)
    made.invalid(G, "PodGroup ns/g: spec.minMember: 0 is not allowed", before=True)
    await quiet(api)
    made.hint(G, "label gangsched.io/quue means nothing; did you mean gangsched.io/queue?")
    await quiet(api)
    made.invalid(G, "PodGroup ns/g: spec.minMember: 0 is not allowed", before=False)
    await quiet(api)
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running
    agrees("statuses-expected.jsonl", lines(api.asked))


# -- what administrators declare ------------------------------------------------------------------


class EnoughError(Exception):
    """Ends a writer after a round."""


@pytest.fixture
def rounds(monkeypatch):
    """Have writers of what is declared end after one round."""

    async def end(_):
        raise EnoughError

    for module in (queue_status, topology_status):
        monkeypatch.setattr(module.asyncio, "sleep", end)


def cluster():
    """Return an engine in whose queues somebody runs, waits and is wrong."""
    racks = [node(f"n{i}", labels={"zone": "z", "rack": f"r{i % 2}"}) for i in range(3)]
    engine = an_engine(*racks, node("bare"))
    gpu, most = "nvidia.com/gpu", GpuBudget(9e4, 86_400.0, per_user=True)
    quota = (Quota(gpu, 16_000),)
    for queue in (
        Queue("org", quotas=quota),
        Queue("team", "org", (Quota(gpu, 32_000),), budgets=(most,), weight=2.0),
        Queue("lost", "nowhere"),
        Queue("broken", broken="spec.quotas[cpu].nominal: -1 is negative"),
        Queue("rare", "org", (Quota(gpu, 1000, "B200"),)),
    ):
        engine.observe(f.QueueSeen(queue), NOW_S)
    engine.observe(
        f.TopologySeen(
            Topology(
                "default",
                (
                    Level("zone", "zone"),
                    Level("rack", "rack", Fabric.NVLINK),
                    Level("none", "none"),
                ),
            )
        ),
        NOW_S,
    )
    for name, queue in (("runs", "team"), ("waits", "team"), ("bad", "lost")):
        group = templated(name, 2, needs(8), queue=queue, user="ann", created_s=NOW_S)
        engine.observe(f.GangSeen(group), NOW_S)
    engine.observe(f.GangSeen(gang("alone", 1, queue="org")), NOW_S)
    engine.observe(pod("alone-0", "alone", needs(4), node=NodeName("n0"), started_s=NOW_S), NOW_S)
    engine.observe(f.UsageRestored("team", "ann", NOW_S, 500.0, ((86_400.0, 20_454, 5e4),)), NOW_S)
    for booking in (
        AdvanceReservation("upkeep", NOW_S - 60, NOW_S + 60, (NodeName("n2"),)),
        AdvanceReservation(
            "weekly", NOW_S + 600, NOW_S + 900, count=2, queues=frozenset({"team"}), every_s=3600.0
        ),
        AdvanceReservation("past", NOW_S - 600, NOW_S - 300, (NodeName("n1"),)),
    ):
        engine.observe(f.AdvanceReservationSeen(booking), NOW_S)
    plan(engine, NOW_S)
    return engine


@pytest.mark.parametrize("named", [False, True])
async def test_what_is_written_of_queues_and_reservations(rounds, named):
    api, engine = Api(), cluster()
    writer = QueueStatusWriter(api, lambda: NOW_S + 30.0, name_gangs=named)
    for name in ("org", "team", "lost", "broken", "rare"):
        writer.queues.track(name, f"uid-{name}", None)
    writer.queues.track("unread", "uid", "Queue unread: spec.weight: 'heavy' is no number")
    for name in ("upkeep", "weekly", "past"):
        writer.reservations.track(name, f"uid-{name}", None)
    at = Prediction(
        GangId("ns/waits"), 1, NOW_S + 90, NOW_S + 60, NOW_S + 120, EstimateSource.DECLARED
    )
    with pytest.raises(EnoughError):
        await writer.run(engine.view, lambda: {at.gang: at})
    agrees(f"queues{'-named' if named else ''}.jsonl", lines(api.asked))


async def test_what_is_written_of_topologies(rounds):
    api, engine = Api(), cluster()
    writer = TopologyStatusWriter(api)
    writer.topologies.track("default", "uid-d", None)
    writer.topologies.track("wrong", "uid-w", "Topology wrong: spec.levels: there are none")
    with pytest.raises(EnoughError):
        await writer.run(engine.view.cluster)
    agrees("topologies.jsonl", lines(api.asked))
