"""Whether waiting gangs start when they were told: ranges of starts against what happened.

Each history has queues, priorities, backfill and preemption. Users say how long their jobs run and
are wrong by a factor of their own and by chance, or say nothing; jobs come after a range was told.
"""

import math
import random
from dataclasses import dataclass, field, replace
from statistics import median

from gangsched.core.engine.engine import Limits
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.nodes import Node
from gangsched.core.model.queues import Queue
from gangsched.core.planning.forecast import Effort, Prediction, forecast, ranges, stretched
from gangsched.core.policy import Policies
from gangsched.core.snapshot import Asked
from simulator.jobs import GPU, Job
from simulator.scenarios.histories import a_tree
from simulator.virtual.job_run import JobRun

LAST_S = 86_400.0
"""Jobs come for so long. Their starts are awaited for twice as long; then they were missed."""

_USERS = ("ann", "bob", "cem", "dee")
_KINDS = ("train", "tune", "eval")
_LOOK_S = 1800.0


@dataclass(slots=True)
class Told:
    """One range that a gang was told at a moment, and when it did start then (None: never)."""

    gang: GangId
    at_s: float
    first: bool
    prediction: Prediction
    started_s: float | None = None

    def holds(self) -> bool:
        """Tell whether the real start lies in the range."""
        low_s, high_s = self.prediction.low_s, self.prediction.high_s
        assert low_s is not None and high_s is not None  # noqa: S101, PT018 -- only such are kept
        return self.started_s is not None and low_s <= self.started_s <= high_s

    def width(self) -> float:
        """Return how wide the range is, as a share of the wait that is expected."""
        one = self.prediction
        assert one.start_s is not None and one.low_s is not None and one.high_s is not None  # noqa: S101, PT018
        return (one.high_s - one.low_s) / max(one.start_s - self.at_s, 60.0)

    def error(self) -> float | None:
        """Return how far the expected start was off, as a share of the wait that was expected."""
        if self.started_s is None or self.prediction.start_s is None:
            return None
        wait_s = max(self.prediction.start_s - self.at_s, 60.0)
        return abs(self.started_s - self.prediction.start_s) / wait_s


@dataclass(slots=True)
class Figures:
    """What was told in some histories."""

    told: list[Told] = field(default_factory=list)
    silent: int = 0

    def flat(self) -> dict[str, float]:
        """Return flat figures."""
        first = [one for one in self.told if one.first]
        errors = [error for one in self.told if (error := one.error()) is not None]
        return {
            "start_estimates": float(len(self.told)),
            "start_estimates_beyond_reach": float(self.silent),
            "start_estimates_inside_their_range": _share(self.told),
            "start_estimates_first_inside_their_range": _share(first),
            "start_range_width_p50": median(one.width() for one in self.told),
            "start_error_p50": median(errors),
        }


def _share(told: list[Told]) -> float:
    return sum(one.holds() for one in told) / max(len(told), 1)


class Foretold(JobRun):
    """A history in which all who wait are told when they will start, and then do, or do not."""

    def __init__(
        self,
        seed: int,
        policies: Policies,
        effort: Effort | None = None,
        *,
        last_s: float = LAST_S,
    ) -> None:
        self.found = Figures()
        self._rng = rng = random.Random(seed)  # noqa: S311 -- a seed is to be the same again
        self._effort = effort
        self._by = policies
        self._last_s = last_s
        self._open: dict[GangId, list[Told]] = {}
        nodes = [_node(index) for index in range(rng.randint(3, 6))]
        queues = a_tree(rng, 8 * len(nodes))
        come = wrongly_estimated(rng, queues, 8 * len(nodes), last_s)
        super().__init__(
            nodes, come, policies, queues, checked=False, limits=Limits(replan_s=600.0)
        )
        self.at(3600.0, self._look)

    def tell(self) -> Figures:
        """Run the history; return what was told in it."""
        self.run(3 * self._last_s)
        return self.found

    def _look(self) -> None:
        if self.now_s > self._last_s:
            return
        self.at(self.now_s + self._rng.uniform(0.5, 1.5) * _LOOK_S, self._look)
        snapshot = self.engine.snapshot(self.now_s, who=Asked.ALL)
        starts = self.engine.history.starts
        drawn = forecast(snapshot, self._by, self.now_s, self._effort)
        told_now = stretched(drawn, starts.punctuality(self.now_s), self.now_s)
        starts.told(ranges(drawn), self.now_s, self.engine.gangs)
        for gang, one in told_now.items():
            if one.start_s is None:
                self.found.silent += 1
                continue
            told = Told(gang, self.now_s, gang not in self._open, one)
            self._open.setdefault(gang, []).append(told)
            self.found.told.append(told)

    def _over(self, gang: GangId, pods: tuple[PodUid, ...]) -> None:
        for uid in pods:
            known = self.engine.pod(uid)
            if known is not None:
                self.observe(replace(known, ended=True))
        super()._over(gang, pods)

    def _starts(self, gang: GangId) -> None:
        super()._starts(gang)
        for told in self._open.pop(gang, ()):
            told.started_s = self.now_s


def wrongly_estimated(
    rng: random.Random, queues: list[Queue], gpus: int, last_s: float
) -> list[Job]:
    """Return jobs of all sizes whose users are wrong about how long they run."""
    room = _most(queues, gpus) or [("", gpus // 2)]
    habits = {user: math.exp(rng.gauss(0.3, 0.6)) for user in _USERS}
    typical_s = {
        (user, kind): 1800.0 * math.exp(rng.gauss(0.0, 0.8)) for user in _USERS for kind in _KINDS
    }
    crowd = rng.uniform(0.5, 0.9)
    made: list[Job] = []
    at_s = 0.0
    while at_s < last_s:
        at_s += rng.expovariate(gpus * crowd / 17_000.0)
        queue, most = rng.choice(room)
        user, kind = rng.choice(_USERS), rng.choice(_KINDS)
        size = min(rng.choice((1, 2, 4, 8)), most)
        pods = min(rng.choice((1, 1, 1, 2, 2, 4)), most // size)
        runtime_s = typical_s[user, kind] * math.exp(rng.gauss(0.0, 0.4))
        said_s = runtime_s * habits[user] * math.exp(rng.gauss(0.0, 0.5))
        made.append(
            Job(
                f"{user}-{kind}-{len(made):04}",
                at_s,
                runtime_s,
                pods,
                size,
                queue,
                user,
                rng.choice((0, 0, 0, 10, 20)),
                rng.choice((None, said_s, said_s)),
                rng.choice((None, 600.0)),
                preemptible=rng.random() < 0.9,
                grace_s=rng.choice((0.0, 5.0, 30.0)),
            )
        )
    return made


def _most(queues: list[Queue], gpus: int) -> list[tuple[str, int]]:
    """Return the queues that jobs come to, and the GPUs that a job may ask for there."""
    known = {one.name: one for one in queues}
    parents = {one.parent for one in queues}
    found = []
    for one in queues:
        most, at = gpus // 2, one
        while at.parent:
            for quota in at.quotas:
                if quota.borrowing is not None:
                    most = min(most, (quota.nominal + quota.borrowing) // 1000)
            at = known[at.parent]
        if most and one.name not in parents:
            found.append((one.name, most))
    return found


def _node(index: int) -> Node:
    return Node(NodeName(f"n{index}"), (("cpu", 64_000), (GPU, 8), ("pods", 110)))
