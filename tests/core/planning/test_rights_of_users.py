"""Rights of users: accounts, priorities, and how long usage is kept."""

import json
from dataclasses import replace

import pytest
from builders import an_engine, gang, needs, node, pod, templated

from gangsched.core import facts as f
from gangsched.core.bounds import HISTORY_LETTERS, RUN_TIMES, USERS_OF_QUEUE
from gangsched.core.engine.engine import State
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.pods import GPU, MILLI
from gangsched.core.model.queues import GpuBudget, Preemption, Queue, Quota
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from gangsched.core.quota.ledger import Allocation, Ledger
from gangsched.core.quota.queue_tree import QueueTree
from gangsched.core.quota.runtime_history import RuntimeHistory
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack

DAY_S = 86_400.0
POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())


def plan(engine, now_s=0.0):
    return engine.accept(make_plan(engine.begin_cycle(now_s=now_s), POLICIES, now_s), now_s)


def run(engine, name, gpus, now_s=0.0, on="n", members=1, **more):
    """Have a gang run; its pods are bound to one node."""
    engine.observe(f.GangSeen(gang(name, members, **more)), now_s)
    for index in range(members):
        fact = pod(f"{name}-{index}", name, needs(gpus), node=NodeName(on), started_s=now_s)
        engine.observe(fact, now_s)


def told(engine, name="g"):
    """Return why a gang waits, in a word and in a sentence."""
    refusal = engine.view.refusals[GangId(f"ns/{name}")]
    return refusal.reason.value, refusal.message


# -- nobody's -------------------------------------------------------------------------------------


def test_gangs_without_a_user_share_one_limit():
    engine = an_engine(node("n"))
    engine.observe(f.QueueSeen(Queue("q", user_limits=((GPU, 4 * MILLI),))), 0.0)
    run(engine, "a", 4, queue="q")
    engine.observe(f.GangSeen(templated("g", 1, needs(2), queue="q")), 1.0)
    engine.observe(f.GangSeen(templated("h", 1, needs(2), queue="q", user="ann")), 1.0)
    plan(engine, 1.0)
    assert told(engine)[0] == "UserLimit"
    assert "User (unknown) may have 4 nvidia.com/gpu in queue q and has 4" in told(engine)[1]
    assert engine.view.gangs[GangId("ns/h")].state is State.RESERVED


def test_gangs_without_a_user_share_one_budget():
    engine = an_engine(node("n"))
    budget = GpuBudget(3600.0, DAY_S, per_user=True)
    engine.observe(f.QueueSeen(Queue("q", budgets=(budget,))), 0.0)
    run(engine, "a", 4, queue="q")
    engine.observe(f.GangSeen(templated("g", 1, needs(2), queue="q")), 4000.0)
    engine.observe(f.GangSeen(templated("h", 1, needs(2), queue="q", user="ann")), 4000.0)
    plan(engine, 4000.0)
    assert told(engine)[0] == "BudgetSpent"
    assert engine.view.gangs[GangId("ns/h")].state is State.RESERVED


# -- what is kept ---------------------------------------------------------------------------------


def spend(ledger: Ledger, user: str, at_s: float, for_s: float, queue: str = "q") -> None:
    """Have a user hold a GPU for a while."""
    holding = Allocation(GangId("ns/g"), queue, user, (((GPU, ""), MILLI),))
    ledger.charge("pod", holding, at_s)
    ledger.discharge("pod", at_s + for_s)


def test_who_spent_most_is_kept():
    ledger = Ledger()
    ledger.set_tree(QueueTree([Queue("q", budgets=(GpuBudget(1e6, DAY_S, per_user=True),))]), 0.0)
    spend(ledger, "ann", 0.0, 1000.0)
    for number in range(10 * USERS_OF_QUEUE.most):
        spend(ledger, f"made-up-{number}", 1000.0 + number, 0.5)
    assert len(ledger.accounts) <= 4 * USERS_OF_QUEUE.most
    assert ledger.budget_usage(("q", "ann"), GpuBudget(1e6, DAY_S), 20_000.0) == 1000.0
    assert not ledger.users, "nobody holds anything"


def test_queues_that_are_made_up_have_no_accounts_of_their_own():
    ledger = Ledger()
    for number in range(10):
        spend(ledger, "ann", float(number), 0.5, queue=f"made-up-{number}")
    assert {queue for queue, _ in ledger.accounts} == {"default"}
    assert not ledger.users


def test_run_times_of_a_namespace_push_out_its_own():
    history = RuntimeHistory()
    history.record(gang("night-1", 1, user="ann"), 60.0)
    for number in range(RUN_TIMES.most + 10):
        name = GangId(f"flood/{number}x")
        history.record(replace(gang("g", 1, user=f"u{number}"), id=name), 1.0)
    assert len(history.runs) == RUN_TIMES.most
    assert ("ann", "ns/night") in history.runs


def test_ratios_are_of_so_many_users():
    history = RuntimeHistory()
    for number in range(RUN_TIMES.most + 10):
        history.record(gang("g", 1, user=f"u{number}", expected_runtime_s=2), 1.0)
    assert len(history.ratios) == RUN_TIMES.most
    assert "" in history.ratios, "what is known of all of them stays"
    assert len(history._last_recorded) <= RUN_TIMES.most


def test_what_is_written_down_fits():
    history = RuntimeHistory()
    history.record(gang("night-1", 1, user="ann"), 60.0)
    for number in range(RUN_TIMES.most - 1):
        name = GangId(f"flood/{'x' * 240}{number}x")
        history.record(replace(gang("g", 1, user="u" * 250), id=name), 123_456.7)
    text = json.dumps(history.to_json())
    assert len(text) <= HISTORY_LETTERS.most
    assert "ns/night" in text


# -- priorities -----------------------------------------------------------------------------------


def test_system_classes_are_for_their_namespace():
    engine = an_engine(node("n"))
    engine.observe(f.GangSeen(templated("g", 1, needs(1), priority=2_000_000_000)), 0.0)
    theirs = replace(
        templated("h", 1, needs(1), priority=2_000_000_000), id=GangId("kube-system/h")
    )
    engine.observe(f.GangSeen(theirs), 0.0)
    plan(engine)
    reason, message = told(engine)
    assert reason == "NotPermitted"
    assert message == (
        "The gang's priority is 2000000000, and classes above 1000000000, such as "
        "system-cluster-critical, are for namespace kube-system unless "
        "spec.maxPriorityClassName of a queue allows them; name another priorityClassName."
    )
    assert engine.view.gangs[theirs.id].state is State.RESERVED


@pytest.mark.parametrize("whose", ["its own", "its pods'"])
def test_a_queue_bounds_the_priority_of_those_below_it(whose):
    engine = an_engine(node("n"))
    engine.observe(f.QueueSeen(Queue("org", highest_priority=10)), 0.0)
    engine.observe(f.QueueSeen(Queue("team", "org")), 0.0)
    if whose == "its own":
        engine.observe(f.GangSeen(templated("g", 1, needs(1), queue="team", priority=11)), 0.0)
    else:
        engine.observe(f.GangSeen(gang("g", 1, queue="team")), 0.0)
        engine.observe(pod("a", "g", needs(1), priority=11), 0.0)
    engine.observe(f.GangSeen(templated("h", 1, needs(1), queue="team", priority=10)), 0.0)
    plan(engine)
    reason, message = told(engine)
    assert reason == "NotPermitted"
    assert message == (
        "The gang's priority is 11, and queue org allows at most 10 (spec.maxPriorityClassName); "
        "name another priorityClassName."
    )
    assert engine.view.gangs[GangId("ns/h")].state is State.RESERVED


def test_a_queue_may_allow_what_is_for_the_system():
    engine = an_engine(node("n"))
    engine.observe(f.QueueSeen(Queue("q", highest_priority=2_000_000_000)), 0.0)
    engine.observe(f.GangSeen(templated("g", 1, needs(1), queue="q", priority=2_000_000_000)), 0.0)
    plan(engine)
    assert engine.view.gangs[GangId("ns/g")].state is State.RESERVED


def test_who_runs_does_not_raise_himself_above_others():
    engine = an_engine(node("n"))
    engine.observe(f.QueueSeen(Queue("q", highest_priority=10)), 0.0)
    run(engine, "a", 8, queue="q")
    engine.observe(f.GangSeen(gang("a", 1, queue="q", priority=1_000_000)), 1.0)
    engine.observe(f.GangSeen(templated("g", 1, needs(8), queue="q", priority=10)), 1.0)
    assert [one.priority for one in engine.view.running()] == [10]


# -- what a tenant is told, and whom he may hold up -----------------------------------------------


def test_a_refusal_names_the_queues_that_a_namespace_may_use():
    engine = an_engine(node("n"))
    theirs = Queue("theirs", namespaces=frozenset({"secret"}), open_to_all=False)
    ours = Queue("ours", namespaces=frozenset({"ns"}), open_to_all=False)
    for queue in (theirs, ours, Queue("below", "theirs")):
        engine.observe(f.QueueSeen(queue), 0.0)
    engine.observe(f.GangSeen(templated("g", 1, needs(1), queue="theirs")), 0.0)
    engine.observe(f.GangSeen(templated("h", 1, needs(1), queue="nowhere")), 0.0)
    plan(engine)
    may = "namespace ns may use: default, ours."
    assert told(engine)[1] == f"Namespace ns may not use queue theirs; {may}"
    assert told(engine, "h")[1] == f"Queue 'nowhere' does not exist; {may}"


def test_a_gang_without_rights_blocks_no_other_in_a_strict_queue():
    engine = an_engine(node("n"))
    queue = Queue("q", strict=True, namespaces=frozenset({"ns"}), open_to_all=False)
    engine.observe(f.QueueSeen(queue), 0.0)
    stranger = replace(templated("a", 1, needs(1), queue="q"), id=GangId("elsewhere/a"))
    engine.observe(f.GangSeen(stranger), 0.0)
    engine.observe(f.GangSeen(templated("g", 1, needs(1), queue="q", created_s=1.0)), 1.0)
    plan(engine, 1.0)
    assert engine.view.refusals[stranger.id].reason.value == "NotPermitted"
    assert engine.view.gangs[GangId("ns/g")].state is State.RESERVED


def test_a_gang_that_is_being_stopped_is_stopped_first():
    """Who leads now goes on with what a leader that died had begun."""
    engine = an_engine(node("n"), node("m"))
    quota = (Quota(GPU, 16 * MILLI),)
    engine.observe(f.QueueSeen(Queue("q", quotas=quota, preemption=Preemption())), 0.0)
    # Stopping the young one would lose less, were the other not stopping already.
    run(engine, "old", 2, members=4, queue="q")
    run(engine, "young", 2, 900.0, members=4, on="m", queue="q")
    engine.observe(
        pod("old-0", "old", needs(2), node=NodeName("n"), started_s=0.0, terminating=True), 1000.0
    )
    engine.observe(f.GangSeen(templated("g", 1, needs(8), queue="q", priority=1)), 1000.0)
    made = make_plan(engine.begin_cycle(now_s=1000.0), POLICIES, 1000.0)
    (placed,) = made.placements
    assert [one.gang for one in placed.placement.evicts] == ["ns/old"]
    assert engine.view.pod(PodUid("old-0")) is not None


def test_a_namespace_without_rights_does_not_see_errors_of_a_queue():
    engine = an_engine(node("n"))
    closed = Queue("q", "secret", namespaces=frozenset({"theirs"}), open_to_all=False)
    engine.observe(f.QueueSeen(closed), 0.0)
    engine.observe(f.GangSeen(templated("g", 1, needs(1), queue="q")), 0.0)
    plan(engine)
    message = "Namespace ns may not use queue q; namespace ns may use: default."
    assert told(engine) == ("NotPermitted", message)
