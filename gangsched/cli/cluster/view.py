"""A look at the live cluster: everything read once, nothing changed."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gangsched.cli.cluster import leader, lookup
from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import Engine
from gangsched.core.model.ids import GangId
from gangsched.core.planning.forecast import Effort, Prediction, forecast, with_observed_ranges
from gangsched.core.policy import Policies
from gangsched.core.preemption.defragmentation import Budget
from gangsched.core.snapshot import Asked
from gangsched.kube.background import disruption_budgets
from gangsched.kube.background.advisor import budget_of
from gangsched.kube.client.access import Access
from gangsched.kube.client.client import KubeClient
from gangsched.kube.informers import base
from gangsched.kube.service import Scheduler
from gangsched.kube.stored.config_map import Kept
from gangsched.metrics import Metrics
from gangsched.operators.ownership import KEY, standing_of
from gangsched.recording.journal import RestoredEngine, recall


@dataclass(slots=True)
class ClusterView:
    """The cluster as it was read, and the moment.

    `effort` and `budget` are those of the scheduler that runs by the same settings: its answers
    and these are the same.
    """

    engine: Engine
    policies: Policies
    now_s: float
    priorities: dict[str, int] = field(default_factory=dict)
    default_priority: int | None = None
    effort: Effort = field(default_factory=Effort)
    budget: Budget | None = None
    protected: frozenset[GangId] = frozenset()
    notes: list[str] = field(default_factory=list)
    strays: Callable[[GangId], str] = lambda _: ""
    """Returns a sentence on pods of a gang that name another scheduler."""

    def predictions(self) -> dict[GangId, Prediction]:
        """Run the scheduler forward; ranges are as wide as earlier starts ask for."""
        snapshot = self.engine.snapshot(self.now_s, who=Asked.ALL)
        drawn = forecast(snapshot, self.policies, self.now_s, self.effort)
        return with_observed_ranges(
            drawn, self.engine.history.starts.punctuality(self.now_s), self.now_s
        )


async def look(access: Access, config: SchedulerConfig, policies: Policies) -> ClusterView:
    """Read the cluster.

    Whoever asks of one thing is not told of others' objects that are wrong: these have a status.
    """
    logger = logging.getLogger(base.__name__)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        async with KubeClient(access) as client:
            await leader.tell(client, config.lease)
            seen = await read(client, config, policies)
            protected = await disruption_budgets.protected(client, seen.engine)
    finally:
        logger.setLevel(before)
    return ClusterView(
        seen.engine,
        policies,
        time.time(),
        seen.cluster.priorities,
        seen.cluster.default_priority,
        effort_of(config),
        budget_of(config),
        protected,
        strays=seen.status.strays.said,
    )


def recalled(file: Path, config: SchedulerConfig, policies: Policies) -> ClusterView:
    """Return the view that a snapshot keeps.

    Raises:
        ConfigError: the file is no snapshot.

    """
    found = recall(file)
    return ClusterView(
        found.engine,
        policies,
        found.now_s,
        effort=effort_of(config),
        budget=budget_of(config),
    )


def effort_of(config: SchedulerConfig) -> Effort:
    """Return how far a scheduler of these settings looks ahead."""
    return Effort(config.forecast_runs, config.forecast_cycles)


def own_words(access: Access, config: SchedulerConfig) -> Callable[[str], dict[str, Any] | None]:
    """Return who asks the cluster what the job of a name says of itself."""

    async def ask(gang: str) -> dict[str, Any] | None:
        async with KubeClient(access) as client:
            kept = Kept(client, (await at_home(client, config)).history_config_map, KEY)
            running = standing_of(await kept.read())
            return await lookup.ask(client, gang, running.others if running is not None else {})

    return lambda gang: asyncio.run(ask(gang))


async def take(access: Access, config: SchedulerConfig, policies: Policies) -> RestoredEngine:
    """Read the cluster, and keep the facts it came in, the last of each object."""
    told: list[f.Fact] = []

    class Listening(Engine):
        def observe(self, fact: f.Fact, now_s: float) -> tuple[o.Order, ...]:
            told.append(fact)
            return super().observe(fact, now_s)

    async with KubeClient(access) as client:
        seen = await read(client, config, policies, Listening)
    return RestoredEngine(seen.engine, seen.now_s(), told)


async def at_home(client: KubeClient, config: SchedulerConfig) -> SchedulerConfig:
    """Return settings by which what a scheduler keeps is looked for where it leads from.

    A chart may be installed in any namespace; a place that a settings file names is used as it is.
    """
    own, name = config.lease.partition("/")[0], config.history_config_map.partition("/")[2]
    if config.history_config_map != f"{own}/{name}":
        return config
    place = await leader.home(client, config.lease)
    if place in ("", own):
        return config
    return config.model_copy(update={"history_config_map": f"{place}/{name}"})


async def read(
    client: KubeClient,
    config: SchedulerConfig,
    policies: Policies,
    engine: type[Engine] = Engine,
) -> Scheduler:
    """Read the cluster through a client, then stop the watches."""
    config = await at_home(client, config)
    scheduler = Scheduler(client, config, policies, Metrics(), read_only=True, make_engine=engine)
    done = asyncio.Event()

    async def watch() -> None:
        async with asyncio.TaskGroup() as group:
            await scheduler.read(group)
            done.set()

    task = asyncio.ensure_future(watch())
    waiter = asyncio.ensure_future(done.wait())
    await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    task.cancel()
    result = (await asyncio.gather(task, return_exceptions=True))[0]
    if not done.is_set() and isinstance(result, BaseException):
        raise result
    scheduler.thinking.sort_out()
    return scheduler
