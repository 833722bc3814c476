"""Queues at size: Kueue's generators in virtual time, cycles with 10,000 pending gangs, victims.

The generators are those of Kueue's test/performance/scheduler (configs baseline and large-scale,
release 0.19): single-pod workloads that run for milliseconds, with CPU quota only. `capped` limits
writes to 50 per second with a burst of 100, as Kueue's test client does; each admission is one
write. It plans every second, and not while 75 writes wait (`plan_interval_s`, `queued_binds_max`).
"""

import gc
import itertools
import random
import time
from dataclasses import dataclass

from rich.progress import track

from gangsched.core.engine.engine import Engine, Limits
from gangsched.core.facts import GangGone, GangSeen, NodeSeen, PodGone, PodSeen, QueueSeen
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import PodRequirements
from gangsched.core.model.queues import Preemption, Queue, Quota, Reclaim, Within
from gangsched.core.orders import Evict
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack
from simulator.jobs import Job
from simulator.virtual.api_server import Writes
from simulator.virtual.job_run import JobRun, Timing

GPU = "nvidia.com/gpu"
POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())


@dataclass(frozen=True, slots=True)
class Class:
    """One class of Kueue's generator; counts are per ClusterQueue."""

    name: str
    count: int
    cpus: int
    runtime_s: float
    every_s: float
    priority: int


KUEUE = {
    "baseline": (
        (5, 6),
        (
            Class("small", 350, 1, 0.2, 0.1, 50),
            Class("medium", 100, 5, 0.5, 0.5, 100),
            Class("large", 50, 20, 1.0, 1.2, 200),
        ),
    ),
    "large": (
        (10, 100),
        (
            Class("small", 35, 1, 0.15, 0.06, 50),
            Class("medium", 11, 5, 0.35, 0.3, 100),
            Class("large", 4, 20, 0.7, 0.7, 200),
        ),
    ),
}


def kueue(shape: str, *, capped: bool) -> dict[str, float]:
    """Run one of Kueue's loads; figures are virtual seconds, except `compute_s`."""
    (cohorts, members), classes = KUEUE[shape]
    queues, jobs = [], []
    for cohort in range(cohorts):
        parent = f"cohort-{cohort}"
        queues.append(Queue(parent, quotas=(Quota("cpu", 20_000 * members),)))
        for member in range(members):
            name = f"{parent}-{member}"
            quota = Quota("cpu", 20_000, borrowing=100_000)
            rules = Preemption(Within.LOWER, Reclaim.ANY)
            queues.append(Queue(name, parent, (quota,), preemption=rules))
            jobs += [
                Job(
                    f"{name}-{workload.name}-{index}",
                    index * workload.every_s,
                    workload.runtime_s,
                    queue=name,
                    priority=workload.priority,
                    needs=PodRequirements((("cpu", workload.cpus * 1000),)),
                    grace_s=0.0,
                )
                for workload in classes
                for index in range(workload.count)
            ]
    total = cohorts * members * 20
    nodes = [_node(index, (("cpu", 96_000), ("pods", 500))) for index in range(total // 80)]
    timing = Timing(1.0, writes=Writes(50.0, 100, waiting=75)) if capped else Timing()
    job_run = JobRun(nodes, jobs, POLICIES, queues, timing=timing, checked=False)
    begin_s = time.perf_counter()
    job_run.run()
    compute_s = time.perf_counter() - begin_s
    done = [outcome for outcome in job_run.outcomes.values() if outcome.ended_s is not None]
    figures = {
        "wall_s": job_run.now_s,
        "compute_s": compute_s,
        "unfinished": float(len(job_run.outcomes) - len(done)),
        "preempted": float(sum(outcome.stopped for outcome in done)),
    }
    for workload in classes:
        waits = [
            outcome.wait_s or 0.0 for outcome in done if outcome.job.priority == workload.priority
        ]
        figures[f"{workload.name}_s"] = sum(waits) / len(waits)
    work = sum(
        (end - start) * dict(outcome.job.wants().requests)["cpu"] / 1000
        for outcome in done
        for start, end in outcome.runs
    )
    figures["used"] = work / (total * job_run.now_s)
    return {f"kueue_{shape}{'' if capped else '_uncapped'}_{k}": v for k, v in figures.items()}


# -- one cycle, one search ------------------------------------------------------------------------


def _node(index: int, amounts: tuple[tuple[str, int], ...]) -> Node:
    name = NodeName(f"node-{index:05}")
    labels = {"kubernetes.io/hostname": name, "rack": f"rack-{index // 16}"}
    return Node(name, amounts, labels)


def _needs(gpus: int) -> PodRequirements:
    return PodRequirements((("cpu", 1000), (GPU, gpus)))


def _gang(name: str, pods: int, gpus: int, queue: str, at_s: float, priority: int = 0) -> Gang:
    role = Role("w", pods, pods, _needs(gpus))
    return Gang(
        GangId(f"ns/{name}"),
        pods,
        (role,),
        queue=queue,
        created_s=at_s,
        priority=priority,
        expected_runtime_s=600.0 + sum(name.encode()) * 37 % 86_400,
    )


class Busy:
    """A cluster full of running gangs in 30 queues; with `borrowing`, ten queues use most of it."""

    def __init__(self, nodes: int, seed: int, *, borrowing: bool) -> None:
        self.borrowing = borrowing
        self.rng = random.Random(seed)
        self.turn = 0
        self.engine = Engine(Limits())
        self.running: list[GangId] = []
        self.now_s = 1000.0
        self.uids: dict[GangId, list[PodUid]] = {}
        self.queues = [f"team-{index:02}" for index in range(30)]
        milli = nodes * 8 * 1000
        self.engine.observe(QueueSeen(Queue("org", quotas=(Quota(GPU, milli),))), 0.0)
        for name in self.queues:
            quota = Quota(GPU, milli // 30)
            self.engine.observe(QueueSeen(Queue(name, "org", (quota,))), 0.0)
        free = {}
        for index in range(nodes):
            amounts = (("cpu", 96_000), ("memory", 2**40), (GPU, 8), ("pods", 110))
            node = _node(index, amounts)
            free[node.name] = 8
            self.engine.observe(NodeSeen(node), 0.0)
        self._fill(free)

    def _fill(self, free: dict[NodeName, int]) -> None:
        """Fill node after node with gangs of all sizes."""
        open_nodes = list(free)[::-1]
        for count in itertools.count():
            if not open_nodes:
                return
            pods, gpus = self.rng.choice((1, 1, 2, 2, 4, 4, 8, 16)), self.rng.choice((1, 2, 4, 8))
            seats: list[NodeName] = []
            while open_nodes and len(seats) < pods:
                name = open_nodes[-1]
                if free[name] < gpus:
                    gpus = gpus if seats else free[name]
                    if seats:
                        break
                free[name] -= gpus
                seats.append(name)
                if not free[name]:
                    open_nodes.pop()
            gang = _gang(f"run-{count}", len(seats), gpus, self._queue(), float(count % 900))
            self._runs(gang, seats)

    def _queue(self) -> str:
        """Return a queue; with borrowing, ten queues use three quarters of the cluster."""
        if not self.borrowing:
            self.turn += 1
            return self.queues[self.turn % len(self.queues)]
        return self.rng.choice(self.queues[:10] if self.rng.random() < 0.75 else self.queues[10:])

    def _runs(self, gang: Gang, seats: list[NodeName]) -> None:
        self.engine.observe(GangSeen(gang), 0.0)
        needs = gang.roles[0].needs or _needs(1)
        for index, node in enumerate(seats):
            uid = PodUid(f"{gang.id}/{index}")
            name = PodName(f"{gang.id}-w-{index}")
            seen = PodSeen(uid, name, needs, gang.id, "w", node, started_s=gang.created_s)
            self.engine.observe(seen, gang.created_s)
            self.uids.setdefault(gang.id, []).append(uid)
        self.running.append(gang.id)

    def ends(self) -> None:
        """End one running gang at random."""
        gang = self.running.pop(self.rng.randrange(len(self.running)))
        for uid in self.uids.pop(gang):
            self.engine.observe(PodGone(uid), self.now_s)
        self.engine.observe(GangGone(gang), self.now_s)

    def comes(self, name: str, pods: int, gpus: int, priority: int = 0, queue: str = "") -> GangId:
        """Submit a gang."""
        gang = _gang(name, pods, gpus, queue or self._queue(), self.now_s, priority)
        self.engine.observe(GangSeen(gang), self.now_s)
        return gang.id

    def cycle(self) -> tuple[float, int]:
        """Return the milliseconds of one cycle, from snapshot to acceptance, and its placements."""
        gc.collect()
        begin_s = time.perf_counter()
        plan = make_plan(self.engine.begin_cycle(now_s=self.now_s), POLICIES, self.now_s)
        orders = self.engine.accept(plan, self.now_s)
        spent_ms = (time.perf_counter() - begin_s) * 1000
        for order in orders:  # evicted pods are gone before the next cycle
            if isinstance(order, Evict):
                self.engine.observe(PodGone(order.uid), self.now_s)
        return spent_ms, len(plan.placements)


def cycles(nodes: int, pending: int, rounds: int) -> dict[str, float]:
    """Time cycles with many pending gangs; before each, one gang ends and another is submitted."""
    busy = Busy(nodes, seed=1, borrowing=False)
    for index in range(pending):
        pods, gpus = busy.rng.choice((1, 2, 4, 8, 16, 32, 64)), busy.rng.choice((1, 2, 4, 8))
        busy.comes(f"wait-{index}", pods, gpus)
        busy.now_s += 0.01
    gc.collect()
    gc.freeze()
    first_ms, _ = busy.cycle()
    times_ms, started = [], 0
    for index in track(range(rounds), f"cycles with {pending:,} waiting", transient=True):
        busy.now_s += 1.0
        busy.ends()
        busy.comes(f"late-{index}", busy.rng.choice((1, 2, 4, 8)), busy.rng.choice((1, 2, 4, 8)))
        spent_ms, placed = busy.cycle()
        times_ms.append(spent_ms)
        started += placed
    gc.unfreeze()
    times_ms.sort()
    return {
        "cycle_first_ms": first_ms,
        "cycle_p50_ms": times_ms[rounds // 2],
        "cycle_p99_ms": times_ms[int(rounds * 0.99)],
        "cycle_started": float(started),
    }


def victims(nodes: int, rounds: int) -> dict[str, float]:
    """Time cycles in which one gang must preempt others: by priority, or to reclaim its quota."""
    busy = Busy(nodes, seed=2, borrowing=True)
    gc.collect()
    gc.freeze()
    busy.cycle()
    times_ms, helped = [], 0
    for index in track(range(rounds), "victims", transient=True):
        busy.now_s += 1.0
        pods, gpus = busy.rng.choice((1, 2, 4, 8, 16, 32, 64)), busy.rng.choice((1, 2, 4, 8))
        lender = busy.rng.choice(busy.queues[10:])
        gang = busy.comes(f"high-{index}", pods, gpus, busy.rng.choice((0, 10)), lender)
        begin_s = time.perf_counter()
        plan = make_plan(busy.engine.begin_cycle(now_s=busy.now_s), POLICIES, busy.now_s)
        times_ms.append((time.perf_counter() - begin_s) * 1000)
        helped += sum(bool(planned.placement.evicts) for planned in plan.placements)
        busy.engine.observe(GangGone(gang), busy.now_s)
    gc.unfreeze()
    times_ms.sort()
    return {
        "victims_p50_ms": times_ms[rounds // 2],
        "victims_p99_ms": times_ms[int(rounds * 0.99)],
        "victims_found": helped / rounds,
    }


def run() -> dict[str, float]:
    """Return flat figures."""
    figures = cycles(5000, 10_000, 300) | victims(5000, 300)
    for shape in KUEUE:
        for capped in (True, False):
            figures |= kueue(shape, capped=capped)
    return figures
