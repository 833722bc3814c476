"""Queues over generated histories: usage agrees with pods, and no gang starves.

The judge (simulator/invariants/run_checker.py) looks after every event: quotas and loans, books
against pods, no loop. Here: nobody starves, nobody is stopped for nothing, reservations are kept,
shares follow weights.
"""

import random

import pytest
from builders import node
from effort import seeds

from gangsched.core.model.queues import Queue
from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.conservative import Conservative
from policies.drf import Drf
from policies.easy import Easy
from policies.fair import Fair
from policies.fifo import Fifo
from policies.greedy import Greedy
from policies.least_attained import LeastAttained
from policies.pack import Pack
from policies.priority_age import PriorityAge
from policies.shortest import Shortest
from policies.youngest import Youngest
from simulator.jobs import GPU, Job
from simulator.scenarios.histories import random_jobs, random_tree
from simulator.virtual.api_calls import ApiCallJobRun
from simulator.virtual.api_server import ApiServer
from simulator.virtual.job_run import JobRun

SEEDS = seeds(3)


POLICIES = {
    "fifo-drf-easy": Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest()),
    "age-fair-conservative": Policies(PriorityAge(), Pack(), Fair(), Conservative(), Cheapest()),
    "fifo-drf-greedy-youngest": Policies(Fifo(), Pack(), Drf(), Greedy(), Youngest()),
    "shortest-easy": Policies(Shortest(), Pack(), Drf(), Easy(), Cheapest(solve=False)),
    "las-one-line": Policies(LeastAttained(), Pack(), None, Easy(), Cheapest()),
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("seed", SEEDS)
def test_usage_agrees_and_no_gang_starves(seed, name):
    rng = random.Random(seed)
    nodes = [node(f"n{index}") for index in range(rng.randint(2, 6))]
    queues = random_tree(rng, 8 * len(nodes))
    job_run = JobRun(nodes, random_jobs(rng, queues, 60), POLICIES[name], queues)
    job_run.observers.on_plan = lambda _: check_loans(job_run, queues)
    job_run.run(until_s=50_000)
    for outcome in job_run.outcomes.values():
        if outcome.ended_s is None:
            assert never_fits(outcome.job, queues, job_run), (
                outcome.job,
                job_run.engine.view.refusals,
            )
    check_preemptions(job_run)


def check_loans(job_run: JobRun, queues: list[Queue]) -> None:
    """What may not be stopped is never more than a queue is guaranteed: it would be no loan."""
    parents = {queue.name: queue.parent for queue in queues}
    held: dict[str, int] = {}
    for state in job_run.engine.view.gangs.values():
        if state.spec is not None and not state.spec.preemptible:
            name = state.spec.queue
            while name:
                gpus = job_run.engine.view.ledger.usage_of_gang(state.id).get((GPU, ""), 0)
                held[name] = held.get(name, 0) + gpus
                name = parents[name]
    for queue in queues:
        for quota in queue.quotas:
            assert held.get(queue.name, 0) <= quota.nominal, queue.name


def never_fits(job: Job, queues: list[Queue], job_run: JobRun) -> bool:
    """Tell whether a job is too large for its queue or the cluster, and was told so."""
    refusal = job_run.engine.view.refusals.get(job.id)
    if refusal is not None and refusal.reason.value in ("LargerThanQuota", "LargerThanCluster"):
        return True
    by_name = {queue.name: queue for queue in queues}
    blocked = refusal is not None and refusal.reason.value == "BehindHead"
    return blocked and by_name[job.queue].strict


def check_preemptions(job_run: JobRun) -> None:
    """Nobody is stopped for a gang that does not start then, and nobody in vain too often."""
    for one in job_run.preemptions:
        by = job_run.outcomes[one.by]
        assert by.started_s is not None, one
    for outcome in job_run.outcomes.values():
        assert outcome.stopped <= 20, outcome
        if not outcome.job.preemptible:
            assert not outcome.stopped


def in_line(rng: random.Random) -> list[Job]:
    """Return jobs that come each second and whose run times are known."""
    return [
        Job(
            f"j{index:03}",
            float(index),
            runtime_s := float(rng.randint(5, 100)),
            rng.choice((1, 1, 2, 4, 6)),
            rng.choice((1, 2, 4, 8)),
            estimate_s=runtime_s,
        )
        for index in range(60)
    ]


def late_s(job_run: JobRun) -> dict[str, float]:
    """Run a load; return how much later each gang started than it was first promised."""
    promised: dict[str, float] = {}

    def look(now_s: float) -> None:
        for gang, one in job_run.engine.view.backfill_reservations.items():
            promised.setdefault(gang, one.start_s)

    job_run.observers.on_plan = look
    job_run.run()
    assert promised
    return {gang: job_run.outcomes[gang].started_s - start_s for gang, start_s in promised.items()}


@pytest.mark.parametrize("backfill", [Easy(), Conservative()], ids=["easy", "conservative"])
@pytest.mark.parametrize("seed", SEEDS)
def test_backfill_never_delays_the_first(seed, backfill):
    """With true estimates the head of the line starts no later than when it was first promised."""
    rng = random.Random(seed)
    nodes = [node(f"n{index}") for index in range(rng.randint(2, 6))]
    policies = Policies(Fifo(), Pack(), None, backfill, None)
    # Under EASY who was once the head may be passed again by nobody: it stays the head.
    assert max(late_s(JobRun(nodes, in_line(rng), policies)).values()) <= 1e-6


@pytest.mark.parametrize("seed", SEEDS)
def test_the_first_is_delayed_by_calls_alone(seed):
    """Where binding takes some seconds so late is the head, not by the run time of who passed."""
    rng = random.Random(seed)
    nodes = [node(f"n{index}") for index in range(rng.randint(2, 6))]
    policies = Policies(Fifo(), Pack(), None, Easy(), None)
    job_run = ApiCallJobRun(ApiServer(rng, latency_s=0.5), nodes, in_line(rng), policies)
    assert max(late_s(job_run).values()) < 15


@pytest.mark.parametrize("sharing", [Drf(), Fair()], ids=["drf", "fair"])
def test_shares_converge_to_weights(sharing):
    """Two queues that always want everything get GPU time by their weights."""
    queues = [Queue("a", weight=3.0), Queue("b", weight=1.0)]
    nodes = [node(f"n{index}") for index in range(4)]
    made = [
        Job(f"{queue}{index}", 0.0, 50.0 + index % 7, 1, 4, queue, estimate_s=60.0)
        for queue in "ab"
        for index in range(400)
    ]
    job_run = JobRun(nodes, made, Policies(Fifo(), Pack(), sharing, None, None), queues)
    job_run.run(until_s=2_000)
    served = {"a": 0.0, "b": 0.0}
    for outcome in job_run.outcomes.values():
        for start_s, end_s in outcome.runs:
            served[outcome.job.queue] += end_s - start_s
    assert served["a"] / served["b"] == pytest.approx(3.0, rel=0.1)


def test_the_past_fades_with_its_half_life():
    """Analytic checks of decay: a rate converges to r*H/ln 2, and halves after H."""
    from gangsched.core.quota.gpu_time import GpuTime

    time = GpuTime(rate=2.0)
    time.advance_to(100_000.0, 100.0)
    assert time.historical_gpu_s == pytest.approx(2.0 * 100.0 / 0.6931471805599453)
    time.rate, before = 0.0, time.historical_gpu_s
    time.advance_to(100_100.0, 100.0)
    assert time.historical_gpu_s == pytest.approx(before / 2)
