"""Steps that preempted jobs lose, with and without consent: 100 preemptions in virtual time.

Each of the low jobs trains on a whole node and saves every 600 s; a job of higher priority comes
every 40 s. With consent, the jobs save when their stop is announced. A save takes up to 20 s. Calls
to the API server take about 0.1 s, and 1 % of them fail.
"""

import random

from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack
from simulator.jobs import Job
from simulator.virtual.api_calls import ApiCallJobRun
from simulator.virtual.api_server import ApiServer

_NODES, _GPUS = 8, 8
_STEP_S, _SAVE_S, _GRACE_S, _INTERVAL_S = 1.0, 20.0, 60.0, 600.0
_PREEMPTIONS = 100


class _Run(ApiCallJobRun):
    """A run that counts the steps that each stopped job has to repeat."""

    lost_steps: list[float]

    def _stopped(self, gang: GangId) -> None:
        if gang not in self._since_s:
            return
        outcome = self.outcomes[gang]
        before = outcome.lost_gpu_s
        super()._stopped(gang)
        self.lost_steps.append((outcome.lost_gpu_s - before) / outcome.job.all_gpus() / _STEP_S)


def _lost(*, consent: bool) -> _Run:
    rng = random.Random(7)
    nodes = [
        Node(NodeName(f"n{at}"), (("cpu", 64_000), ("nvidia.com/gpu", _GPUS), ("pods", 40)))
        for at in range(_NODES)
    ]
    jobs = [
        Job(f"low-{at}", rng.uniform(0, 10), 36_000.0, 1, _GPUS, checkpoint_s=_INTERVAL_S,
            asks_s=_GRACE_S if consent else None, save_s=rng.uniform(1.0, _SAVE_S))
        for at in range(_NODES)
    ]  # fmt: skip
    jobs += [
        Job(f"high-{at}", 100.0 + 40.0 * at + rng.random(), 25.0, 1, _GPUS, priority=9)
        for at in range(3 * _PREEMPTIONS)
    ]
    policies = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())
    run = _Run(ApiServer(rng, 0.1, 0.01), nodes, jobs, policies, checked=False)
    run.lost_steps = []
    run.run(100.0 + 40.0 * 3 * _PREEMPTIONS)
    return run


def run() -> dict[str, float]:
    """Run both ways; return flat figures."""
    figures: dict[str, float] = {}
    for name, consent in (("", True), ("_without_consent", False)):
        lost = sorted(_lost(consent=consent).lost_steps[:_PREEMPTIONS])
        figures[f"preemptions{name}"] = float(len(lost))
        figures[f"lost_steps_p99{name}"] = lost[min(len(lost) * 99 // 100, len(lost) - 1)]
        figures[f"lost_steps_p50{name}"] = lost[len(lost) // 2]
    return figures
