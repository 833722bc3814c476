"""Statuses of groups: failed writes are repeated, statuses of another process are not."""

import asyncio
import contextlib
from collections import defaultdict
from dataclasses import replace

import pytest
from waiting import until_async

from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.model.runtime import EstimateSource
from gangsched.core.orders import Report, Reserve
from gangsched.core.planning.forecast import Prediction
from gangsched.core.snapshot import BackfillReservation
from gangsched.kube.client.errors import Forbidden, Invalid, NotFound, Unavailable
from gangsched.kube.decoding.external import groups
from gangsched.kube.decoding.external.owners import OWNERS
from gangsched.kube.status import podgroup_status
from gangsched.kube.status.events import ObjectRef
from gangsched.kube.status.external_status import WRITERS, status_of
from gangsched.kube.status.podgroup_status import PodGroupStatusWriter
from gangsched.kube.status.status_record import same

G = GangId("ns/g")


def idle(made: PodGroupStatusWriter) -> bool:
    """Tell whether everything was written: all writers wait, and there is nothing for them."""
    waiting = [one for one in made._queue._waiting if not one.done()]
    return len(waiting) == podgroup_status._WRITERS and not len(made._queue)


class Api:
    """An API server that refuses what is written of a group so often, with these errors."""

    def __init__(self, **errors: list[Exception]) -> None:
        self.errors = errors
        self.phases, self.events = defaultdict(list), defaultdict(list)
        self.kinds: dict[str, str] = {}

    async def patch(self, path, body, *_) -> bytes:
        name = path.split("/")[-2]
        assert body["metadata"]["uid"], "a successor of the name could be meant"
        self.phases[name].append(body["status"]["phase"])
        return self._answer(name)

    async def create(self, _, body) -> bytes:
        name = body["involvedObject"]["name"]
        self.events[name].append(body["reason"])
        self.kinds[body["reason"]] = body["type"]
        return b"{}"

    def _answer(self, name: str) -> bytes:
        if self.errors.get(name):
            raise self.errors[name].pop(0)
        return b"{}"


AWAY = [Unavailable(503, "etcd is away")] * 3


async def told(api: Api, wrote: dict[str, list[str]]) -> None:
    """Tell that two groups are placed, until the API server has taken it of the one called last.

    What is written of that one fails three times. It is said after the other, and so it is tried
    again after the other: by its end the other would have been tried four times, too.
    """
    made = PodGroupStatusWriter(api)
    for name in ("g", "last"):
        group = ObjectRef("gangsched.io/v1beta1", "PodGroup", "ns", name, name, has_status=True)
        made.subject(GangId(f"ns/{name}"), group)
        made.apply(Report(GangId(f"ns/{name}"), "Placed", "Placed", "all 2 pods are bound."))
    running = asyncio.create_task(made.run())
    await until_async(
        lambda: (len(wrote["last"]) > len(AWAY) and idle(made)) or running.done(),
        "the last write",
        shown=lambda: f"{dict(wrote)}",
    )
    assert not running.done()
    running.cancel()


@pytest.mark.parametrize(
    ("error", "writes"),
    [
        (Unavailable(503, "etcd is away"), 2),
        (Forbidden(403, "not yet"), 2),
        (Invalid(422, "no such phase"), 1),
        (NotFound(404, "gone"), 1),
    ],
)
async def test_a_status_that_could_not_be_written(monkeypatch, error, writes):
    monkeypatch.setattr(podgroup_status, "_AGAIN_S", 0.01)
    api = Api(g=[error], last=list(AWAY))
    await told(api, api.phases)
    assert api.phases["g"] == ["Placed"] * writes


class Moody(Api):
    """An API server that takes statuses at once, and refuses Events so often."""

    async def patch(self, *_) -> bytes:
        return b"{}"

    async def create(self, _, body) -> bytes:
        await super().create(_, body)
        return self._answer(body["involvedObject"]["name"])


@pytest.mark.parametrize(
    ("error", "tries"), [(Unavailable(503, "etcd is away"), 2), (Forbidden(403, "no right"), 1)]
)
async def test_an_event_that_could_not_be_written_is_written_later(monkeypatch, error, tries):
    monkeypatch.setattr(podgroup_status, "_AGAIN_S", 0.01)
    api = Moody(g=[error], last=list(AWAY))
    await told(api, api.events)
    assert api.events["g"] == ["Placed"] * tries


class Slow:
    """An API server where the first write fails in a way nobody knows, and others are not answered.

    Not before it is told to `answer`.
    """

    def __init__(self) -> None:
        self.answer, self.asked, self.phases = asyncio.Event(), [], {}

    async def patch(self, path, body, *_) -> bytes:
        name = path.split("/")[-2]
        self.asked.append(name)
        if name == "bad" and self.asked.count("bad") == 1:
            raise ZeroDivisionError("a defect")
        await self.answer.wait()
        self.phases[name] = body["status"]["phase"]
        return b"{}"

    async def create(self, *_) -> bytes:
        return b"{}"


async def test_a_status_written_beside_a_failure_is_written_after_the_restart():
    api = Slow()
    made = PodGroupStatusWriter(api)
    for name in ("good", "bad"):
        group = ObjectRef("gangsched.io/v1beta1", "PodGroup", "ns", name, name, has_status=True)
        made.subject(GangId(f"ns/{name}"), group)
        made.apply(Report(GangId(f"ns/{name}"), "Placed", "Placed", "all 2 pods are bound."))
    with pytest.raises(ExceptionGroup):
        await made.run()
    assert api.asked == ["good", "bad"]
    assert "good" not in api.phases
    api.answer.set()
    await written(made)
    assert api.phases["good"] == "Placed"


async def written(made: PodGroupStatusWriter) -> None:
    """Write until everything is written."""
    running = asyncio.create_task(made.run())
    await until_async(lambda: idle(made) or running.done(), "everything to be written")
    assert not running.done()
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running  # or its writers would count as waiting when others begin


class Store:
    """An API server that keeps one object's status and its Events."""

    def __init__(self) -> None:
        self.status, self.writes, self.events = {}, 0, []

    async def patch(self, _, body, *__) -> bytes:
        self.writes += 1
        self.status |= body["status"]
        return b"{}"

    async def create(self, _, body) -> bytes:
        self.events.append((body["reason"], body["message"]))
        return b"{}"


OURS = ObjectRef("gangsched.io/v1beta1", "PodGroup", "ns", "g", "u", has_status=True)
THEIRS = [
    ObjectRef(kind.api_version, "PodGroup", "ns", "g", "u", external_kind=kind)
    for kind in groups.KINDS
    if kind.source in (groups.VOLCANO, groups.KAI, groups.UPSTREAM)
]
RESERVED = Reserve(G, ((PodName("ns/g-0"), NodeName("n")),))
PLACED = Report(G, "Placed", "Placed", "all 2 pods of the gang are bound.", proof="proved")
MET = Report(G, "Placed", "Placed", "all 2 pods of the gang are bound.", adopted=True)
NOT_ENOUGH_FREE = Refusal(G, Reason.NOT_ENOUGH_FREE, "no node has 8 free GPUs.")
REFUSED = Report(G, "Pending", "NotEnoughFree", "no node has 8 free GPUs.", NOT_ENOUGH_FREE)


async def one_process(api: Store, subject: ObjectRef, monkeypatch, now: str, *reports) -> None:
    """Say something by a process that begins with what is stored, as a new leader does."""
    monkeypatch.setattr(podgroup_status, "rfc3339", lambda: now)
    made = PodGroupStatusWriter(api, lambda _: (2, (2, 0, 0)))
    made.apply(Report(G, "Gathering", "PodGroupMissing", "the pods name PodGroup g."))
    made.subject(G, subject)
    made.restore(G, api.status)
    for report in reports:
        made.apply(report)
        await written(made)


@pytest.mark.parametrize("subject", [OURS, *THEIRS], ids=lambda one: one.api_version)
@pytest.mark.parametrize(("first", "then"), [((RESERVED, PLACED), MET), ((REFUSED,), REFUSED)])
async def test_a_new_process_says_nothing_twice(monkeypatch, subject, first, then):
    api = Store()
    await one_process(api, subject, monkeypatch, "2026-01-01T00:00:00Z", *first)
    before, events = dict(api.status), list(api.events)
    assert len(events) == 1
    writes = api.writes
    await one_process(api, subject, monkeypatch, "2026-01-02T00:00:00Z", then)
    assert api.status == before
    assert api.writes == writes
    assert api.events == events


def test_every_kind_of_group_has_a_writer_of_its_status():
    assert {(kind.api_version, kind.kind) for kind in groups.KINDS} == WRITERS.keys()
    assert not any(status_of(kind) for kind in OWNERS)


NATIVE = [one for one in THEIRS if status_of(one.external_kind).merged]


@pytest.mark.parametrize("subject", NATIVE, ids=lambda one: one.api_version)
async def test_a_native_group_that_started_says_so_to_its_end(monkeypatch, subject):
    api = Store()
    await one_process(api, subject, monkeypatch, "2026-01-01T00:00:00Z", PLACED)
    first = api.status["conditions"]
    await one_process(api, subject, monkeypatch, "2026-01-02T00:00:00Z", REFUSED)
    assert api.status["conditions"] == first
    assert [one["status"] for one in first] == ["True"]


@pytest.mark.parametrize("subject", NATIVE, ids=lambda one: one.api_version)
async def test_a_native_group_of_the_same_name_begins_from_nothing(subject):
    api = Store()
    made = PodGroupStatusWriter(api, lambda _: (2, (2, 0, 0)))
    made.subject(G, subject)
    made.apply(PLACED)
    await written(made)
    made.subject(G, replace(subject, uid="another"))
    made.apply(REFUSED)
    await written(made)
    assert [one["status"] for one in api.status["conditions"]] == ["False"]


async def test_what_is_new_is_said_and_its_time_is_right(monkeypatch):
    api = Store()
    await one_process(api, OURS, monkeypatch, "2026-01-01T00:00:00Z", PLACED)
    below = Report(G, "Placed", "BelowMinimum", "1 of at least 2 members run.")
    await one_process(api, OURS, monkeypatch, "2026-01-02T00:00:00Z", MET, below)
    assert api.writes == 2
    assert [reason for reason, _ in api.events] == ["Placed", "BelowMinimum"]
    (condition,) = api.status["conditions"]
    assert condition["lastTransitionTime"] == "2026-01-02T00:00:00Z"
    await one_process(api, OURS, monkeypatch, "2026-01-03T00:00:00Z", below)
    assert api.writes == 2
    other = Report(G, "Placed", "BelowMinimum", "0 of at least 2 members run.")
    await one_process(api, OURS, monkeypatch, "2026-01-04T00:00:00Z", other)
    (condition,) = api.status["conditions"]
    assert condition["message"].startswith("0 of")
    assert condition["lastTransitionTime"] == "2026-01-02T00:00:00Z", "it was False before"


@pytest.mark.parametrize(
    ("stored", "wanted", "is_same"),
    [
        ({"a": 1, "other": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 1, "b": None, "c": [], "d": ""}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": 1}, {"a": None}, False),
        ({"a": [1, 2]}, {"a": [1]}, False),
        ({"a": [{"x": 1, "lastTransitionTime": "t"}]}, {"a": [{"x": 1}]}, True),
        ({"a": [{"x": 1}]}, {"a": [{"x": 2}]}, False),
        ({"a": "text"}, {"a": {"x": 1}}, False),
    ],
)
def test_same_is_what_a_merge_would_not_change(stored, wanted, is_same):
    assert same(stored, wanted) is is_same


@pytest.mark.parametrize(
    "stored", [{"start": {"expected": "soon"}}, {"conditions": ["x"]}, {"start": {"expected": 5}}]
)
async def test_a_scribble_in_a_status_is_overwritten(monkeypatch, stored):
    api = Store()
    api.status = stored
    await one_process(api, OURS, monkeypatch, "2026-01-01T00:00:00Z", PLACED)
    assert api.status["phase"] == "Placed"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (Reason.UNKNOWN_QUEUE, "Warning"),
        (Reason.MISCONFIGURED, "Warning"),
        (Reason.NOT_PERMITTED, "Warning"),
        (Reason.TOO_LARGE, "Warning"),
        (Reason.NOT_ENOUGH_FREE, "Normal"),
        (Reason.QUOTA_IN_USE, "Normal"),
    ],
)
async def test_a_problem_for_an_administrator_is_a_warning(reason, kind):
    api = Api()
    made = PodGroupStatusWriter(api)
    made.subject(G, OURS)
    made.apply(Report(G, "Pending", reason.value, "why.", Refusal(G, reason, "why.")))
    await written(made)
    assert api.kinds == {reason.value: kind}


MENDED = ["UnknownQueue", "Misconfigured", "NotPermitted", "LargerThanCluster"]


@pytest.mark.parametrize("kind", groups.KINDS, ids=lambda kind: kind.api_version)
async def test_peers_groups_are_warned_of_the_same(kind):
    api = Api()
    api.patch = Store().patch
    made = PodGroupStatusWriter(api)
    made.subject(G, ObjectRef(kind.api_version, kind.kind, "ns", "g", "u", external_kind=kind))
    for reason in MENDED:
        refusal = Refusal(G, Reason(reason), f"{reason}.")
        made.apply(Report(G, "Pending", reason, refusal.message, refusal))
    await written(made)
    assert api.kinds == dict.fromkeys(MENDED, "Warning")


@pytest.mark.parametrize("lasts", [True, False])
async def test_pods_without_their_group_are_reported_if_that_lasts(lasts):
    api = Api()
    made = PodGroupStatusWriter(api)
    made.subject(G, ObjectRef("batch/v1", "Job", "ns", "g", "u"))
    made.apply(Report(G, "Gathering", "PodGroupMissing", "its Job does not exist."))
    if not lasts:
        made.forget(G)
    await written(made)
    assert not api.events["g"]
    made._report_lasting(G, "PodGroupMissing")
    await written(made)
    assert api.events["g"] == (["PodGroupMissing"] if lasts else [])


def test_moments_are_long_enough_for_the_garbage_collector():
    assert podgroup_status._PASSING_S[Reason.NO_GROUP.value] >= 5.0


async def test_a_new_or_moved_reservation_is_reported():
    """Also where the start that is expected stays where it was."""
    made, told = PodGroupStatusWriter(Api()), []
    group = ObjectRef("gangsched.io/v1beta1", "PodGroup", "ns", "g", "g", has_status=True)
    made.subject(G, group)
    made.restore(G, {"phase": "Pending"})

    def expect(promised_s: float | None) -> None:
        one = Prediction(G, 1, 4e9, 4e9, 4e9, EstimateSource.LEARNED)
        kept = {} if promised_s is None else {G: BackfillReservation(G, promised_s, ())}
        made._records[G].changed = False
        made.predict({G: one}, kept)
        told.append((made._records[G].changed, made._records[G].start["reserved"]))

    for promised_s in (None, 4e9, 4e9 + 1, 5e9, None):
        expect(promised_s)
    later, much_later = "2096-10-02T07:06:40Z", "2128-06-11T08:53:20Z"
    wanted = [(True, None), (True, later), (False, later), (True, much_later), (True, None)]
    assert told == wanted
    again = PodGroupStatusWriter(Api())
    again.subject(G, group)
    again.restore(G, {"phase": "Pending", "start": made._records[G].start | {"reserved": later}})
    made = again
    expect(4e9)
    assert told[-1] == (False, later), "what an earlier process said is not said again"
