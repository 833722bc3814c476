"""The kopf operator: it watches jobs, and reports every change to the controller of their kind."""

import asyncio
import logging
import signal
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import kopf
from prometheus_client import Gauge

from gangsched.config import ConfigError
from gangsched.core.bounds import EVALUATION_MIB, EVALUATION_S
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.jobs.trainer.reconcile import KIND as TRAINJOB
from gangsched.kube.client.access import Access
from gangsched.kube.client.client import KubeClient
from gangsched.kube.stored.config_map import ConfigMapEntry
from gangsched.operators.api_objects import NO_ENV
from gangsched.operators.controllers.job_observer import JobObserver
from gangsched.operators.controllers.launched_mpijobs import MpiJobs
from gangsched.operators.controllers.object_trees import tree_controller
from gangsched.operators.controllers.pod_jobs import PodJobs
from gangsched.operators.controllers.reconciler import Reconciler
from gangsched.operators.controllers.released_gangs import Releaser
from gangsched.operators.evaluation.pool import Evaluators
from gangsched.operators.job_kind import OwnerKind
from gangsched.operators.kinds import jobset, trainjob
from gangsched.operators.kopf_session import session
from gangsched.operators.ownership import Ownership
from gangsched.operators.part_watches import watching_parts
from gangsched.operators.runtime_watch import RuntimeReceiver, Runtimes
from gangsched.operators.tracking.run_tracker import RunTracker

log = logging.getLogger(__name__)

Controllers = dict[str, Reconciler[Any]]
"""The controllers by kind."""

_AGAIN_S = 5.0
_SEARCHERS = ("cmaes", "gjson", "optuna", "scipy", "skopt", "threadpoolctl")


@dataclass(frozen=True, slots=True)
class SchedulerNames:
    """The names of the scheduler, with that of pods first; `trials`: pods of trials get it too."""

    scheduler: str = "gangsched"
    aliases: tuple[str, ...] = ()
    trials: bool = True


_DEFAULTS = SchedulerNames()


@dataclass(frozen=True, slots=True)
class ControllerOutputs:
    """The outputs beside the API: a ConfigMap and a gauge of each kind's owner, counts of jobs."""

    kept: ConfigMapEntry | None = None
    gauge: Gauge | None = None
    jobs: JobObserver | None = None
    tracker: RunTracker | None = None
    """The runs of jobs on a tracking server."""


_NOWHERE = ControllerOutputs()


async def run_operators(
    access: Access | None,
    client: KubeClient,
    kinds: Collection[str] | None = None,
    ours: SchedulerNames = _DEFAULTS,
    env: Mapping[str, str] = NO_ENV,
    evaluation: tuple[float, int] = (EVALUATION_S.most, EVALUATION_MIB.most),
    outputs: ControllerOutputs = _NOWHERE,
) -> None:
    """Run the job controllers of some kinds; the default are all that no other operator runs.

    Pods get the scheduler of `ours`, and containers the variables of `env`. `evaluation` are the
    seconds and the MiB of memory that one evaluation of user input may take.

    Raises:
        ConfigError: there is no such kind.

    """
    async with Evaluators(*evaluation) as evaluators:
        searches = _search_kinds(evaluators, ours.scheduler if ours.trials else "")

        def controllers() -> tuple[Controllers, RuntimeReceiver]:
            return _controllers(client, ours, env, evaluators, searches, outputs)

        known = controllers()[0]
        for kind in kinds or ():
            if kind not in known:
                raise ConfigError(
                    f"job_kinds: {kind!r} is not a known kind; allowed are: {', '.join(known)}"
                )
        ownership = Ownership(client, known, kinds, outputs.kept, outputs.gauge)
        deciding = asyncio.create_task(ownership.run())
        stop = asyncio.Event()
        stopped = asyncio.create_task(stop.wait())
        changed = asyncio.create_task(ownership.changed.wait())
        running: asyncio.Task[None] | None = None
        tracking = asyncio.create_task(_track(outputs.tracker))
        try:
            while True:
                tasks = {deciding, changed, stopped}
                tasks |= {running} if running is not None else set()
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if done != {changed}:
                    for task in done:
                        task.result()
                    return
                # As after a restart: the watches report the whole state again.
                await _cancel(running)
                if outputs.jobs is not None:
                    outputs.jobs.begin()
                ownership.changed.clear()
                changed = asyncio.create_task(ownership.changed.wait())
                owners = ownership.owners
                ours_now = owners.ours if owners is not None else frozenset()
                if outputs.tracker is not None:
                    outputs.tracker.begin(ours_now)
                running = asyncio.create_task(_run(access, client, ours_now, *controllers(), stop))
        finally:
            await _cancel(deciding, changed, stopped, running, tracking)


async def _track(tracker: RunTracker | None) -> None:
    """Keep the runs of jobs up to date; a failure never reaches the controllers."""
    while tracker is not None:
        try:
            await tracker.run()
        except Exception:
            log.exception("the runs of jobs are not kept up to date; that is started again")
        await asyncio.sleep(_AGAIN_S)


async def _cancel(*tasks: "asyncio.Task[Any] | None") -> None:
    """Cancel tasks, and wait until they have ended."""
    pending = [task for task in tasks if task is not None]
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


def _controllers(
    client: KubeClient,
    ours: SchedulerNames,
    env: Mapping[str, str],
    evaluators: Evaluators,
    searches: Collection[OwnerKind],
    outputs: ControllerOutputs = _NOWHERE,
) -> tuple[Controllers, RuntimeReceiver]:
    """Return a controller for each kind, and the receiver of runtimes."""
    controllers: Controllers = {}
    observer, tracker = outputs.jobs, outputs.tracker
    for kind, framework in FRAMEWORKS.items():
        family = MpiJobs if kind == "MPIJob" else PodJobs
        jobs = family(ours.scheduler, framework, env, ours.aliases, tracker)
        controllers[kind] = Reconciler(client, jobs, observer)
    runtimes = Runtimes()
    owners = (
        jobset.jobset_kind(ours.scheduler, evaluators),
        trainjob.trainjob_kind(runtimes),
        *searches,
    )
    for owner in owners:
        controllers[owner.kind] = tree_controller(client, owner, env, observer, tracker)
    runtimes.on_change = controllers[TRAINJOB].wake_all
    return controllers, RuntimeReceiver(client, runtimes)


async def _run(
    access: Access | None,
    client: KubeClient,
    own_kinds: frozenset[str],
    every: Controllers,
    known: RuntimeReceiver,
    stop: asyncio.Event,
) -> None:
    """Run the controllers of gangsched's kinds, and release the gangs of all other kinds."""
    controllers = {kind: controller for kind, controller in every.items() if kind in own_kinds}
    released = {kind: Releaser(client, kind) for kind in every if kind not in own_kinds}
    more = known.watches() if TRAINJOB in controllers else []
    async with watching_parts(client, {**controllers, **released}, more) as watching:
        tasks = [asyncio.create_task(controller.run()) for controller in controllers.values()]
        tasks += [asyncio.create_task(releaser.run()) for releaser in released.values()]
        if TRAINJOB in controllers:
            tasks.append(asyncio.create_task(known.labelling.run()))
        if controllers:  # without handlers, an operator returns at once
            tasks += await _kopf(controllers, access, stop)
        try:
            done, _ = await asyncio.wait([*tasks, watching], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            await _cancel(*tasks)


async def _kopf(
    controllers: Controllers, access: Access | None, stop: asyncio.Event
) -> list[asyncio.Task[None]]:
    """Start kopf's watches of jobs; return its tasks. A signal sets `stop`."""
    registry = kopf.OperatorRegistry()
    _register(registry, controllers, access)
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False  # Events are for users, and kopf's are about handlers
    settings.scanning.disabled = False
    settings.watching.server_timeout = 300
    # kopf would kill this process ten minutes after its tasks are cancelled; the process goes on.
    settings.process.ultimate_exiting_timeout = None
    # Not kopf.operator(): when it stops, it waits 5 s for all other tasks of this loop.
    tasks = await kopf.spawn_tasks(
        registry=registry, settings=settings, clusterwide=True, standalone=True
    )
    # kopf handles the signals, and nothing would once its tasks have ended.
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return list(tasks)


def _search_kinds(evaluators: Evaluators, scheduler: str = "") -> tuple[OwnerKind, ...]:
    """Return the kinds Experiment and Trial, if their libraries are installed."""
    if any(find_spec(name) is None for name in _SEARCHERS):
        log.info("gangsched does not run Experiments: they need gangsched[experiments]")
        return ()
    from gangsched.operators.kinds import experiment, trial  # noqa: PLC0415 -- only where installed

    return experiment.experiment_kind(evaluators), trial.trial_kind(evaluators, scheduler)


def _register(
    registry: kopf.OperatorRegistry, controllers: Controllers, access: Access | None
) -> None:
    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return session(access)

    for controller in controllers.values():
        _register_kind(registry, controller)


def _register_kind(registry: kopf.OperatorRegistry, controller: Reconciler[Any]) -> None:
    group, version = controller.kind.api_version.split("/")

    @kopf.on.event(
        group, version, controller.kind.plural, id=controller.kind.kind, registry=registry
    )
    async def changed(event: kopf.RawEvent, body: kopf.Body, **_: Any) -> None:
        # kopf calls plain functions in other threads, and controllers belong to this loop's.
        if event["type"] == "DELETED":
            controller.job_gone(dict(body))
        else:
            controller.job_seen(dict(body))
