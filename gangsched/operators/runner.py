"""The kopf operator: it watches jobs, and hands every change to the controller of their kind."""

import asyncio
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import kopf

from gangsched.config import ConfigError
from gangsched.core.bounds import EVALUATION_MIB, EVALUATION_S
from gangsched.core.jobs.kinds import FRAMEWORKS
from gangsched.core.jobs.trainjob import KIND as TRAINJOB
from gangsched.kube.access import Access
from gangsched.kube.client import KubeClient
from gangsched.operators import jobset, trainjob
from gangsched.operators.controller import JobController
from gangsched.operators.evaluators import Evaluators
from gangsched.operators.neighbours import kinds_of_others
from gangsched.operators.objects import NO_ENV
from gangsched.operators.owner import OwnerController, OwnerKind
from gangsched.operators.parts import watched
from gangsched.operators.runtimes import RuntimeReceiver, Runtimes
from gangsched.operators.session import session

log = logging.getLogger(__name__)

Controllers = dict[str, JobController | OwnerController]
"""By kind."""

_SEARCHERS = ("gjson", "optuna", "scipy", "skopt", "threadpoolctl")


@dataclass(frozen=True, slots=True)
class Ours:
    """Our scheduler's names, that which pods get first; `trials`: also those of trials' Jobs."""

    scheduler: str = "gangsched"
    aliases: tuple[str, ...] = ()
    trials: bool = True


_DEFAULTS = Ours()


async def run_operators(
    access: Access | None,
    client: KubeClient,
    kinds: Collection[str] | None = None,
    ours: Ours = _DEFAULTS,
    env: Mapping[str, str] = NO_ENV,
    evaluation: tuple[float, int] = (EVALUATION_S.most, EVALUATION_MIB.most),
) -> None:
    """Run the job controllers of some kinds, by default all that no other operator runs.

    `ours` says whose their pods are. Every container of them is told `env`. An `evaluation` of what
    users wrote may take so many seconds, and MiB of memory.

    Raises:
        ConfigError: there is no such kind.

    """
    async with Evaluators(*evaluation) as evaluators:
        await _run(access, client, kinds, ours, env, evaluators)


async def _run(
    access: Access | None,
    client: KubeClient,
    kinds: Collection[str] | None,
    ours: Ours,
    env: Mapping[str, str],
    evaluators: Evaluators,
) -> None:
    controllers: Controllers = {
        kind: JobController(client, ours.scheduler, framework, env, ours.aliases)
        for kind, framework in FRAMEWORKS.items()
    }
    runtimes = Runtimes()
    searches = _searches(evaluators, ours.scheduler if ours.trials else "")
    owners = jobset.kind(ours.scheduler, evaluators), trainjob.kind(runtimes), *searches
    for owner in owners:
        controllers[owner.kind] = OwnerController(client, owner, env)
    for kind in kinds or ():
        if kind not in controllers:
            raise ConfigError(
                f"job_kinds: there is no kind {kind!r}; there are: {', '.join(controllers)}"
            )
    if kinds is None:
        for kind, why in (await kinds_of_others(client, time.time())).items():
            if controllers.pop(kind, None) is not None:
                log.warning(
                    "jobs of kind %s are left alone: %s. Name the kind in job_kinds to run it here",
                    kind,
                    why,
                )
    else:
        controllers = {kind: one for kind, one in controllers.items() if kind in kinds}
    if not controllers:
        # An operator without handlers would return at once, which is taken for a signal to stop.
        log.warning("no kind of job is run here; gangs of pods are scheduled all the same")
        await asyncio.Event().wait()
    registry = kopf.OperatorRegistry()
    _register(registry, controllers, access)
    known = RuntimeReceiver(client, runtimes)
    train = controllers.get(TRAINJOB)
    if isinstance(train, OwnerController):
        runtimes.heard = train.wake_all
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # our Events say what a user needs, and nothing of handlers
    settings.scanning.disabled = False
    settings.watching.server_timeout = 300
    more = known.watches() if TRAINJOB in controllers else []
    async with watched(client, controllers, more) as watching:
        # Not kopf.operator(): told to stop, that waits 5 s for whatever else runs in this loop.
        operator = await kopf.spawn_tasks(
            registry=registry, settings=settings, clusterwide=True, standalone=True
        )
        queues = [known.labelling, *controllers.values()]
        tasks = [*operator, *(asyncio.create_task(one.run()) for one in queues)]
        try:
            done, _ = await asyncio.wait([*tasks, watching], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def _searches(evaluators: Evaluators, scheduler: str = "") -> tuple[OwnerKind, ...]:
    """Return how Experiments and their Trials are run, where what they need is installed."""
    if any(find_spec(name) is None for name in _SEARCHERS):
        log.info("Experiments are left alone: they need the extra gangsched[experiments]")
        return ()
    from gangsched.operators.search import experiment, trial  # noqa: PLC0415 -- only where installed

    return experiment.kind(evaluators), trial.kind(evaluators, scheduler)


def _register(
    registry: kopf.OperatorRegistry, controllers: Controllers, access: Access | None
) -> None:
    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return session(access)

    for controller in controllers.values():
        _register_kind(registry, controller)


def _register_kind(
    registry: kopf.OperatorRegistry, controller: JobController | OwnerController
) -> None:
    group, version = controller.kind.api_version.split("/")

    @kopf.on.event(
        group, version, controller.kind.plural, id=controller.kind.kind, registry=registry
    )
    def changed(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        if event["type"] == "DELETED":
            controller.job_gone(dict(body))
        else:
            controller.job_seen(dict(body))
