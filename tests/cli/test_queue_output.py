"""Errors of Queues in the terminal and in the status."""

import contextlib
import json

import pytest
from builders import POLICIES, an_engine, needs, node, templated
from rich.console import Console

from gangsched.cli import queries
from gangsched.cli.cluster import view as live
from gangsched.cli.cluster.changes import queue_notes
from gangsched.cli.cluster.view import ClusterView
from gangsched.cli.output import tables
from gangsched.config import ConfigError, SchedulerConfig
from gangsched.core import facts as f
from gangsched.core.model.pods import GPU
from gangsched.core.model.queues import Queue, Quota
from gangsched.core.planning.planner import make_plan
from gangsched.kube.service import Scheduler
from gangsched.kube.status.queue_status import pending_and_admitted, queue_status, quotas_effective
from gangsched.metrics import Metrics
from gangsched.recording.anonymize import Pseudonyms

GPUS = (Quota(GPU, 64_000),)
RESEARCH = (
    Queue("research", quotas=GPUS),
    Queue("speech", "research", (Quota(GPU, 4_000_000),)),
    Queue("vision", "research", (Quota(GPU, 16_000),)),
)


@pytest.fixture
def scheduler():
    """Return a scheduler that changes nothing."""
    return Scheduler(None, SchedulerConfig(), POLICIES, Metrics(), read_only=True)


def declare(scheduler: Scheduler, name: str = "q", **spec: object) -> None:
    body = {"metadata": {"name": name, "uid": name}, "spec": spec}
    scheduler.informers.queues.on_update(json.dumps(body).encode())


def view(*queues: Queue) -> ClusterView:
    engine = an_engine(node("n", gpu_model="NVIDIA-H100-80GB-HBM3"))
    for queue in queues:
        engine.observe(f.QueueSeen(queue), 0.0)
    return ClusterView(engine, POLICIES, 10.0)


def printed(show, *args: object, terminal: bool = True) -> str:
    """Return what is printed at 80 columns, its lines joined."""
    console = Console(width=80, force_terminal=terminal, no_color=True, highlight=False)
    with console.capture() as said:
        show(*args[:-1] if args[-1] is None else args, console)
    return said.get()


def row(found: list[dict], name: str) -> dict:
    return next(one for one in found if one["queue"] == name)


# -- Queues that cannot be read -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"quotas": [{"resource": GPU, "nominal": -4}]},
            "spec.quotas[nvidia.com/gpu].nominal: -4 is negative",
        ),
        (
            {"quotas": [{"resource": "memory", "nominal": "much"}]},
            "spec.quotas[memory].nominal: 'much' is no quantity such as 2, 500m or 4Gi",
        ),
        ({"userLimits": {GPU: -1}}, "spec.userLimits[nvidia.com/gpu]: -1 is negative"),
        (
            {"quotas": [{"resource": GPU, "nominal": 1}, {"resource": GPU, "nominal": 2}]},
            "spec: quotas: nvidia.com/gpu is there twice",
        ),
    ],
)
def test_a_queue_stored_before_the_rules_is_listed_with_its_problem(scheduler, spec, said):
    declare(scheduler, **spec)
    engine = scheduler.engine
    assert engine.view.ledger.usage.tree.problems["q"] == said
    found = queries.queues(ClusterView(engine, POLICIES, 0.0))
    assert row(found, "q")["problem"] == said
    text = printed(tables.show_queues, found, terminal=False)
    assert f"q: {said}\n" in text
    assert queue_notes(engine, "q") == [f"the queue cannot be used: {said}"]
    engine.observe(f.NodeSeen(node("n")), 0.0)
    engine.observe(f.GangSeen(templated("g", 1, needs(1), queue="q")), 0.0)
    engine.accept(make_plan(engine.begin_cycle(now_s=0.0), POLICIES, 0.0), 0.0)
    (refusal,) = engine.view.refusals.values()
    assert (refusal.reason.value, refusal.message) == (
        "QueueInvalid",
        f"Queue q cannot be used: {said}.",
    )
    declare(scheduler)
    assert "q" in engine.view.ledger.usage.tree, "mended"
    scheduler.informers.queues.on_delete("q", None)
    assert "q" not in engine.view.ledger.usage.tree.queues


def test_a_wrong_edit_leaves_the_last_valid_declaration(scheduler):
    declare(scheduler, weight=2)
    declare(scheduler, weight="heavy")
    assert scheduler.engine.view.ledger.usage.tree.queues["q"].weight == 2


def test_names_in_problems_are_hidden_too():
    fact = f.QueueSeen(Queue("q", "above", broken="spec.x: 'secret' is wrong"))
    hide = Pseudonyms()
    hide.learn([fact])
    assert "secret" not in str(hide.hide({"broken": fact.queue.broken, "parent": "above"}))
    assert "above" not in str(hide.hide({"parent": "above"}))


# -- quotas that count for less -------------------------------------------------------------------


def test_a_quota_above_the_parents_is_reported_everywhere():
    made = view(*RESEARCH)
    said = "spec.quotas[nvidia.com/gpu].nominal: 4000 counts as 48, because queue research"
    condition = quotas_effective(made.engine.view, "speech")
    assert (condition.holds, condition.reason) == (False, "LargerThanParent")
    assert condition.message.startswith(said)
    counts = pending_and_admitted(made.engine.view)
    assert queue_status(made.engine.view, "speech", 0.0, counts, {})["message"].startswith(said)
    assert quotas_effective(made.engine.view, "research").holds
    message = queue_status(made.engine.view, "research", 0.0, counts, {})["message"]
    assert "add up to 4016" in message
    assert quotas_effective(made.engine.view, "vision").holds
    found = queries.queues(made)
    (quota,) = row(found, "speech")["quotas"]
    assert (quota["nominal"], quota["written"]) == ("48", "4000")
    (quota,) = row(found, "research")["quotas"]
    assert (quota["nominal"], quota["written"]) == ("64", "64")
    text = printed(tables.show_queues, found)
    assert "48 of 4000" in text
    assert "64 of" not in text
    assert f"speech: {said}" in " ".join(text.split()).replace("\n", " ")
    one = printed(
        lambda console: tables.show_queue(
            [], "speech", console, 0.0, queue_notes(made.engine, "speech")
        ),
        None,
    )
    assert "4000 counts as 48" in one
    assert "no gang is pending in queue speech" in one


def test_a_resource_that_no_node_has_is_reported():
    made = view(Queue("q", quotas=(Quota("gpu", 4), Quota(GPU, 4000, "B200"))))
    condition = quotas_effective(made.engine.view, "q")
    assert (condition.holds, condition.reason) == (False, "NoSuchNode")
    assert "did you mean nvidia.com/gpu?" in condition.message
    assert "'B200'" in condition.message
    assert "'B200'" in str(row(queries.queues(made), "q")["told"])
    engine = made.engine
    engine.observe(f.QueueSeen(Queue("q", quotas=(Quota(GPU, 4000, "B200"),))), 0.0)
    engine.observe(f.NodeSeen(node("b", gpu_model="NVIDIA-B200")), 0.0)
    assert quotas_effective(engine.view, "q").holds


def test_only_some_of_many_problems_are_printed():
    quotas = tuple(Quota(f"example.com/{index}", 1) for index in range(9))
    condition = quotas_effective(view(Queue("q", quotas=quotas)).engine.view, "q")
    assert condition.message.endswith("; and 6 more.")


# -- what if --------------------------------------------------------------------------------------


def waiting_view() -> ClusterView:
    made = view(Queue("zero", quotas=(Quota(GPU, 0),)), *RESEARCH)
    for name, queue in (("a", "vision"), ("b", "vision"), ("never", "zero")):
        group = templated(name, 1, needs(8), queue=queue)
        made.engine.observe(f.GangSeen(group), 0.0)
    return made


def test_what_if_reports_a_gang_that_starts_only_with_the_change():
    found = queries.what_if(waiting_view(), waiting_view(), queries.Changes([f"zero:{GPU}=16"]))
    by_gang = {one["gang"]: one for one in found}
    assert by_gang["ns/never"]["now"] is None
    assert by_gang["ns/never"]["then"] is not None
    text = printed(lambda console: tables.show_what_if(found, console, 10.0), None)
    (line,) = (line for line in text.splitlines() if "ns/never" in line)
    assert line.rstrip().endswith("starts at all")
    assert "?: later than the forecast reaches" in text


@pytest.mark.parametrize(
    ("now", "then", "said"),
    [("x", None, "later or never"), (None, None, "none seen")],
)
def test_every_change_of_a_start_has_words(now, then, said):
    when = "2026-01-01T00:00:00Z"
    found = [{"gang": "ns/g", "queue": "q", "now": now and when, "then": then, "gained_s": None}]
    assert said in printed(lambda console: tables.show_what_if(found, console, 0.0), None)


def test_a_mean_loss_is_a_loss():
    when = "2026-01-01T00:00:00Z"
    found = [{"gang": "ns/g", "queue": "q", "now": when, "then": when, "gained_s": -600}]
    text = printed(lambda console: tables.show_what_if(found, console, 0.0), None)
    assert "mean gain -10m over 1 gang\n" in text


def test_a_quota_that_the_parent_limits_is_noted():
    changed = waiting_view()
    queries.what_if(waiting_view(), changed, queries.Changes([f"vision:{GPU}=400"]))
    (note,) = (note for note in changed.notes if "vision" in note)
    assert note.startswith("queue vision: spec.quotas[nvidia.com/gpu].nominal: 400 counts as 32,")
    assert not [note for note in changed.notes if "zero" in note]
    unchanged = waiting_view()
    queries.what_if(waiting_view(), unchanged, queries.Changes([f"zero:{GPU}=8"]))
    assert not unchanged.notes, "what was so before is no news"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("zero:nvidia.com/gpu=-4", "--quota zero:nvidia.com/gpu: '-4' is negative"),
        ("zero:memory=lots", "'lots' is no quantity such as 2, 500m or 4Gi"),
        ("bad:cpu=4", "--quota: queue bad cannot be used: spec.x: it is wrong"),
        ("zero", "must be QUEUE:RESOURCE=AMOUNT"),
    ],
)
def test_a_wrong_change_is_one_sentence(text, said):
    made = view(Queue("zero"), Queue("bad", broken="spec.x: it is wrong"))
    with pytest.raises(ConfigError) as caught:
        queries.what_if(made, made, queries.Changes([text]))
    assert said in str(caught.value)
    assert "cpu:" not in str(caught.value)


# -- legends --------------------------------------------------------------------------------------


@pytest.mark.parametrize("terminal", [True, False])
def test_a_terminal_gets_a_legend_of_the_columns(terminal):
    text = printed(tables.show_queues, queries.queues(view()), terminal=terminal)
    assert ("BORROWED: used beyond NOMINAL" in text) == terminal


# -- others' objects ------------------------------------------------------------------------------


async def test_malformed_objects_are_not_logged_by_commands(monkeypatch, scheduler, caplog):
    async def read(*_):
        declare(scheduler, weight="heavy")
        return scheduler

    async def nothing(*_):
        return frozenset()

    monkeypatch.setattr(live, "read_scheduler", read)
    monkeypatch.setattr(live.leader, "warn_without_leader", nothing)
    monkeypatch.setattr(live.disruption_budgets, "protected", nothing)
    monkeypatch.setattr(live, "KubeClient", lambda _: contextlib.nullcontext())
    seen = await live.read_cluster(None, SchedulerConfig(), POLICIES)
    assert seen.engine is scheduler.engine
    assert not caplog.messages
    declare(scheduler, weight="heavier")
    assert len(caplog.messages) == 1, "the scheduler itself says so in its log"
