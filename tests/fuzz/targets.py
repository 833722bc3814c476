"""The decoders of external input, each as a function of bytes that must never raise.

Errors that say in a sentence what is wrong are an answer; anything else is a defect.
"""

import asyncio
import contextlib
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import yaml
from annotations import ASKED
from documents import ENDED, FOREIGN, JOBS, PAST, RUN, SEARCH, SEEN, TEMPLATE, TRIAL, jobsets, meta
from evaluated import Here
from trace_texts import GAVEL, TABLES, THROUGHPUTS

from gangsched.config import ConfigError, SchedulerConfig
from gangsched.core.planning.planner import make_plan
from gangsched.core.quota.runtime_history import RuntimeHistory
from gangsched.extender.server import ExtenderBinder, _bind_args, _filter_args
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import Observed
from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.jobs.kubeflow.reconcile import reconcile
from gangsched.kube.decoding.external import groups
from gangsched.kube.decoding.external.owners import OWNERS
from gangsched.kube.decoding.metadata import ApiObject
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.informers import external_owners
from gangsched.kube.informers.base import Informer
from gangsched.kube.service import Scheduler
from gangsched.metrics import Metrics
from gangsched.operators.job_kind import InvalidJobError
from gangsched.operators.kinds import experiment, jobset, trainjob, trial
from gangsched.operators.kinds.training_job import GANG_RESTARTS, parse
from gangsched.operators.runtime_watch import Runtimes, label_of
from gangsched.operators.search import job_outcome, metrics_collector
from gangsched.operators.search.expressions import ExpressionError
from gangsched.plugins import load_policies
from simulator.scenarios.scenario import load
from simulator.traces import TraceError, read

ROOT = Path(__file__).parents[2]
CLOCK = Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")
_PLANNED_EVERY = 25


class Cluster:
    """A scheduler that is told of everything and may change nothing; it plans now and then."""

    def __init__(self) -> None:
        config = SchedulerConfig()
        self._policies = load_policies(config)
        self.scheduler = made = Scheduler(
            None,  # type: ignore[arg-type]
            config,
            self._policies,
            Metrics(),
            make_binder=partial(ExtenderBinder, schedule_timeout_s=1.0),
            read_only=True,
        )
        self.readers: dict[str, Informer] = {
            "Node": made.informers.nodes,
            "Pod": made.informers.pods,
            "PodGroup": made.informers.pod_groups,
            "Queue": made.informers.queues,
            "Topology": made.informers.topologies,
            "Reservation": made.informers.reservations,
            "PriorityClass": made.informers.priority_classes,
            "Namespace": made.informers.namespaces,
            "Workload": made.informers.workloads,
        }
        owners = made.informers.owners
        self.others = dict(zip(groups.KINDS, owners.groups, strict=True))
        self.others |= dict(zip(OWNERS, owners.receivers, strict=True))
        for name, documents in SEEN.items():
            for document in documents:
                self.readers[name].on_update(json.dumps(document).encode())
        self._count = 0

    def hear(self, reader: Informer, raw: bytes) -> None:
        """Hear of an object, as a watch tells it."""
        uid = msgspec.json.decode(raw)["metadata"]["uid"]
        try:
            reader.decode_and_apply(ApiObject(raw))
        except DecodeError as error:
            reader.malformed(raw, str(error))
        if isinstance(reader, external_owners.PodOwners):
            for gang in list(reader._known):
                reader.named(gang)
        self._count += 1
        if self._count % _PLANNED_EVERY == 0:
            engine = self.scheduler.engine
            plan = make_plan(engine.begin_cycle(1.0), self._policies, 1.0)
            engine.accept(plan, 1.0)
            engine.tick(1.0)
        if self._count % 7 == 0:
            reader.on_delete(uid, raw)


def _job(kind: str) -> Callable[[bytes], None]:
    def target(raw: bytes) -> None:
        try:
            job = parse(json.loads(raw), "gangsched", kind)
        except InvalidJobError:
            return
        reconcile(job, Observed(), CLOCK)

    return target


def _owner(step: Callable[[Owned, Clock], Any]) -> Callable[[bytes], None]:
    def target(raw: bytes) -> None:
        try:
            step(Owned(json.loads(raw), {}), CLOCK)
        except InvalidJobError:
            return

    return target


def _runtime(jobs: tuple[Any, ...]) -> Callable[[bytes], None]:
    """Whoever may write a runtime writes a part of others' jobs."""

    def target(raw: bytes) -> None:
        runtime = json.loads(raw)
        runtimes = Runtimes()
        runtimes.seen(runtime)
        label_of(runtime)
        for job in jobs:
            reference = {"name": runtime["metadata"]["name"]}
            body = {**job, "spec": {**job["spec"], "runtimeRef": reference}}
            with contextlib.suppress(InvalidJobError):
                trainjob.trainjob_kind(runtimes).step(Owned(body, {}), CLOCK)

    return target


def _history(raw: bytes) -> None:
    with contextlib.suppress(ValueError, TypeError):
        RuntimeHistory().merge_json(json.loads(raw))


def _experiment(raw: bytes) -> None:
    kind = experiment.experiment_kind(Here())
    nobody: Any = None  # the API server is not asked
    with contextlib.suppress(InvalidJobError):
        kind.step(asyncio.run(kind.read_unwatched(nobody, Owned(json.loads(raw), {}))), CLOCK)


def _trial(raw: bytes) -> None:
    body = json.loads(raw)
    try:
        spec = trial.validated(Owned(body, {}))
        job = {**spec["runSpec"], "metadata": meta("t"), "status": ENDED}
        ended = job_outcome.outcome_of_job(spec, job)
        series = metrics_collector.read("loss=0.5\nloss=0.1", ["loss"], trial.filters(spec))
        owned = Owned(body, {(job["kind"], "t"): job}, {"ended": ended, "series": series})
        trial.trial_kind(Here()).step(owned, CLOCK)
    except (InvalidJobError, ExpressionError, job_outcome.ConditionError):
        return


def _scenario(folder: Path) -> Callable[[bytes], None]:
    def target(raw: bytes) -> None:
        path = folder / "scenario.yaml"
        path.write_bytes(raw)
        try:
            load(path)
        except ConfigError:
            return

    return target


def _trace(folder: Path, name: str) -> Callable[[bytes], None]:
    def target(raw: bytes) -> None:
        path = folder / "trace"
        path.write_bytes(raw)
        (folder / "simulation_throughputs.json").write_text(THROUGHPUTS)
        for skip in (False, True):
            with contextlib.suppress(TraceError):
                read(path, name, skip=skip)

    return target


def _throughputs(folder: Path) -> Callable[[bytes], None]:
    def target(raw: bytes) -> None:
        (folder / "trace").write_text(GAVEL)
        (folder / "simulation_throughputs.json").write_bytes(raw)
        with contextlib.suppress(TraceError):
            read(folder / "trace", "gavel")

    return target


def _extender(cluster: Cluster) -> Callable[[bytes], None]:
    extender = cluster.scheduler.binder
    assert isinstance(extender, ExtenderBinder)
    cluster.scheduler.ready.set()

    async def look(raw: bytes) -> None:
        args = _filter_args.decode(raw)
        extender._look_up(args.Pod.metadata, args.NodeNames)

    def target(raw: bytes) -> None:
        for decode in (lambda r: asyncio.run(look(r)), _bind_args.decode):
            try:
                decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue

    return target


Target = tuple[Callable[[bytes], None], tuple[Any, ...]]
"""What reads bytes, and good documents to begin with."""

FREE = ("scenario", "throughputs", "extender", "history")
"""Targets that read bytes of anybody; all others read what an API server has taken."""


def targets(folder: Path) -> dict[str, Target]:
    """Return every target by name; some write into a folder."""
    cluster = Cluster()
    found: dict[str, Target] = {}
    for name, documents in SEEN.items():
        reader = cluster.readers[name]
        found[name] = (lambda raw, reader=reader: cluster.hear(reader, raw), documents)
    for kind, documents in FOREIGN.items():
        reader = cluster.others[kind]
        name = f"{kind.kind}.{kind.api_version}"
        found[name] = (lambda raw, reader=reader: cluster.hear(reader, raw), documents)
    for kind, framework in FRAMEWORKS.items():
        template = json.loads(json.dumps(TEMPLATE).replace("pytorch", framework.container))
        marked = {"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}, **template}
        role = {"replicas": 1, "restartPolicy": "ExitCode", "template": marked}
        spec = {framework.specs: dict.fromkeys(framework.roles[:2], role), "runPolicy": RUN}
        few = {**spec, "runPolicy": {"schedulingPolicy": {"minAvailable": 1}}}
        found[kind] = (
            _job(kind),
            (
                {"metadata": meta("j"), "spec": few},
                *(
                    {"metadata": meta("j", annotations=said), "spec": spec | JOBS.get(kind, {})}
                    for said in (*ASKED, {GANG_RESTARTS: "2"})
                ),
            ),
        )
    found["JobSet"] = (_owner(jobset.jobset_kind("gangsched").step), jobsets())
    runtimes = Runtimes()
    shipped = yaml.safe_load_all((ROOT / "manifests/runtimes/runtimes.yaml").read_text())
    known = [one for one in shipped if one["kind"] == "ClusterTrainingRuntime"]
    for one in known:
        runtimes.seen(one)
    trainer = {"numNodes": 2, "command": ["x"], "resourcesPerNode": {"limits": {"cpu": "2"}}}
    specs = [
        {"runtimeRef": {"name": name}, "trainer": trainer}
        for name in ("torch-distributed", "deepspeed-distributed", "jax-distributed")
    ]
    bodies = tuple({"metadata": meta("t"), "spec": spec} for spec in specs)
    asked_too = tuple({"metadata": meta("t", annotations=one), "spec": specs[0]} for one in ASKED)
    found["TrainJob"] = (_owner(trainjob.trainjob_kind(runtimes).step), (*bodies, *asked_too))
    found["TrainingRuntime"] = (_runtime(bodies), tuple(known))
    found["Experiment"] = (_experiment, (SEARCH,))
    found["Trial"] = (_trial, (TRIAL,))
    scenarios = tuple(
        yaml.safe_load(path.read_text())
        for path in sorted((ROOT / "examples" / "simulations").glob("*.yaml"))
    )
    found["scenario"] = (_scenario(folder), scenarios)
    texts = {name: text for name, (text, _) in TABLES.items()} | {"gavel": GAVEL}
    for name, text in texts.items():
        found[f"trace {name}"] = (_trace(folder, name), (text,))
    found["history"] = (_history, (PAST,))
    found["throughputs"] = (_throughputs(folder), (json.loads(THROUGHPUTS),))
    asked = {"Pod": {"metadata": {"uid": "p"}}, "NodeNames": ["n"]}
    bound = {"PodName": "p", "PodNamespace": "ns", "PodUID": "p", "Node": "n"}
    found["extender"] = (_extender(cluster), (asked, bound))
    return found
