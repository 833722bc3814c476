"""Random histories by seed: trees of queues, and jobs for them."""

import random

from gangsched.core.model.ids import NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.queues import Preemption, Queue, Quota, Reclaim, Within
from simulator.jobs import GPU, Job


def machine(index: int) -> Node:
    """Return a node with eight GPUs."""
    return Node(NodeName(f"n{index}"), (("cpu", 64_000), (GPU, 8), ("pods", 110)))


def random_tree(rng: random.Random, gpus: int) -> list[Queue]:
    """Return a random tree of up to three levels with nominal quotas that add up."""
    milli = gpus * 1000
    queues = [Queue("org", quotas=(Quota(GPU, milli),))]
    left = milli
    for name in "abc"[: rng.randint(1, 3)]:
        share = rng.choice((0, left // 4 // 1000 * 1000, left // 2 // 1000 * 1000))
        left -= share
        quota = Quota(
            GPU,
            share,
            borrowing=rng.choice((None, None, 0, 4000, 16_000)),
            lending=rng.choice((None, None, 0, share // 2000 * 1000)),
        )
        queues.append(
            Queue(
                name,
                "org",
                (quota,),
                weight=rng.choice((1.0, 2.0)),
                preemption=Preemption(
                    rng.choice(list(Within)), rng.choice(list(Reclaim)), rng.random() < 0.3
                ),
                strict=rng.random() < 0.15,
                min_runtime_s=rng.choice((0.0, 0.0, 20.0)),
            )
        )
        if rng.random() < 0.4:
            queues.append(Queue(f"{name}1", name))
            queues.append(Queue(f"{name}2", name, (Quota(GPU, share // 2000 * 1000),)))
    return queues


def random_jobs(rng: random.Random, queues: list[Queue], count: int) -> list[Job]:
    """Return jobs of all sizes, in order of arrival, for the queues without children."""
    parents = {queue.parent for queue in queues}
    leaves = [queue.name for queue in queues if queue.name not in parents]
    at_s = 0.0
    jobs = []
    for index in range(count):
        at_s += rng.expovariate(1 / 8)
        pods = rng.choice((1, 1, 1, 2, 2, 4))
        runtime_s = rng.uniform(5, 120)
        estimate_s = rng.choice((None, runtime_s, runtime_s * 2, runtime_s / 2))
        jobs.append(
            Job(
                f"j{index:03}",
                at_s,
                runtime_s,
                pods,
                rng.choice((1, 2, 4, 8)),
                rng.choice(leaves),
                rng.choice(("ann", "bob")),
                rng.choice((0, 0, 0, 10, 20)),
                estimate_s,
                rng.choice((None, 10.0)),
                rng.choice((None, 1)),
                preemptible=rng.random() < 0.9,
                grace_s=rng.choice((0.0, 1.0, 5.0)),
            )
        )
    return jobs
