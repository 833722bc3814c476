"""Reads a live cluster or a snapshot of one into a view for commands; changes nothing."""

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
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.ids import GangId
from gangsched.core.planning.forecast import Effort, Prediction, forecast, with_observed_ranges
from gangsched.core.policy import Policies
from gangsched.core.preemption.defragmentation import Budget
from gangsched.kube.background import disruption_budgets
from gangsched.kube.background.advisor import budget_of
from gangsched.kube.client.access import Access
from gangsched.kube.client.client import KubeClient
from gangsched.kube.informers import base
from gangsched.kube.service import Scheduler
from gangsched.kube.stored.config_map import ConfigMapEntry
from gangsched.metrics import Metrics
from gangsched.operators.ownership import KEY, parse_owners
from gangsched.recording.journal import RestoredEngine, restore


@dataclass(slots=True)
class ClusterView:
    """The cluster as it was read, and the time of reading.

    `effort` and `budget` are those of a scheduler with the same settings, so that both give the
    same answers.
    """

    engine: SchedulingEngine
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
        """Run the scheduler forward; ranges are as wide as the errors of earlier forecasts."""
        snapshot = self.engine.view.snapshot_all(self.now_s)
        drawn = forecast(snapshot, self.policies, self.now_s, self.effort)
        return with_observed_ranges(
            drawn, self.engine.history.starts.punctuality(self.now_s), self.now_s
        )


async def read_cluster(access: Access, config: SchedulerConfig, policies: Policies) -> ClusterView:
    """Read the cluster.

    Malformed objects are not logged: the question is seldom about them, and their status has it.
    """
    logger = logging.getLogger(base.__name__)
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        async with KubeClient(access) as client:
            await leader.warn_without_leader(client, config.lease)
            scheduler = await read_scheduler(client, config, policies)
            protected = await disruption_budgets.protected(client, scheduler.engine.view)
    finally:
        logger.setLevel(before)
    return ClusterView(
        scheduler.engine,
        policies,
        time.time(),
        scheduler.cluster.priorities,
        scheduler.cluster.default_priority,
        effort_of(config),
        budget_of(config),
        protected,
        strays=scheduler.status.strays.sentence,
    )


def restore_view(file: Path, config: SchedulerConfig, policies: Policies) -> ClusterView:
    """Return the view of a snapshot.

    Raises:
        ConfigError: the file is no snapshot.

    """
    restored = restore(file)
    return ClusterView(
        restored.engine,
        policies,
        restored.now_s,
        effort=effort_of(config),
        budget=budget_of(config),
    )


def effort_of(config: SchedulerConfig) -> Effort:
    """Return how far a scheduler with these settings forecasts."""
    return Effort(config.forecast_runs, config.forecast_cycles)


def job_lookup(access: Access, config: SchedulerConfig) -> Callable[[str], dict[str, Any] | None]:
    """Return a function that reads the state of a job from the cluster."""

    async def read(gang: str) -> dict[str, Any] | None:
        async with KubeClient(access) as client:
            settings = await with_leader_namespace(client, config)
            owners = parse_owners(
                await ConfigMapEntry(client, settings.history_config_map, KEY).read()
            )
            left_alone = owners.others if owners is not None else {}
            return await lookup.read_job(client, gang, left_alone)

    return lambda gang: asyncio.run(read(gang))


async def capture_facts(
    access: Access, config: SchedulerConfig, policies: Policies
) -> RestoredEngine:
    """Read the cluster; return the engine with the facts that describe the cluster."""
    facts: list[f.Fact] = []

    async with KubeClient(access) as client:
        scheduler = await read_scheduler(client, config, policies, facts.append)
    return RestoredEngine(scheduler.engine, scheduler.now_s(), facts)


async def with_leader_namespace(client: KubeClient, config: SchedulerConfig) -> SchedulerConfig:
    """Return settings in which `history_config_map` is in the namespace of the leader.

    A chart may be installed in any namespace. A ConfigMap that a settings file names stays.
    """
    own, name = config.lease.partition("/")[0], config.history_config_map.partition("/")[2]
    if config.history_config_map != f"{own}/{name}":
        return config
    namespace = await leader.leader_namespace(client, config.lease)
    if namespace in ("", own):
        return config
    return config.model_copy(update={"history_config_map": f"{namespace}/{name}"})


async def read_scheduler(
    client: KubeClient,
    config: SchedulerConfig,
    policies: Policies,
    on_fact: Callable[[f.Fact], None] = lambda _: None,
) -> Scheduler:
    """Read the cluster through a client, then stop the watches; `on_fact` gets each fact."""
    config = await with_leader_namespace(client, config)
    scheduler = Scheduler(client, config, policies, Metrics(), read_only=True, on_fact=on_fact)
    done = asyncio.Event()

    async def watch() -> None:
        async with asyncio.TaskGroup() as group:
            await scheduler.read(group, once=True)
            done.set()

    task = asyncio.ensure_future(watch())
    waiter = asyncio.ensure_future(done.wait())
    await asyncio.wait([task, waiter], return_when=asyncio.FIRST_COMPLETED)
    waiter.cancel()
    task.cancel()
    result = (await asyncio.gather(task, return_exceptions=True))[0]
    if not done.is_set() and isinstance(result, BaseException):
        raise result
    scheduler.thinking.apply_quarantine()
    return scheduler
