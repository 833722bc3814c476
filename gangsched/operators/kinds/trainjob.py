"""TrainJobs and their runtimes: validation, before the pure reconcile."""

from pydantic import ValidationError

from gangsched.api import dialects, names
from gangsched.api.jobs.trainer import PodGroupPolicy, TrainJobSpec
from gangsched.config import one_sentence
from gangsched.core.bounds import HOSTS_BYTES, PATCHES
from gangsched.core.model.text import shown
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import Json
from gangsched.jobs.common.owned_objects import Owned, Steps
from gangsched.jobs.kubeflow.framework import length_error, listed_bytes
from gangsched.jobs.trainer import initializers, reconcile
from gangsched.jobs.trainer.runtimes import LAUNCHER, RESERVED, cache_error, tuning_error
from gangsched.operators.job_kind import InvalidJobError, OwnerKind
from gangsched.operators.kinds.ssh_keys import with_cache_key, with_ssh_key_pair
from gangsched.operators.runtime_watch import KINDS, Runtimes

MANAGER = "trainer.kubeflow.org/trainjob-controller"
_TIMEOUT = f"{dialects.OURS}schedule-timeout-seconds"
_MALFORMED = (AttributeError, TypeError, KeyError, ValueError, RecursionError)
"""Errors of a malformed patch: patches are stored as users write them, without a schema."""


def trainjob_kind(runtimes: Runtimes) -> OwnerKind:
    """Return the kind TrainJob: its parts and its step."""

    def step(owned: Owned, clock: Clock) -> Steps:
        spec = owned.body.get("spec") or {}
        if spec.get("managedBy") not in (None, "", MANAGER):
            return Steps()  # the job names another controller
        _check(owned)
        runtime, why_none = runtimes.find(owned.body)
        try:
            if runtime is not None:
                _check_runtime(owned, runtime)
            steps = reconcile.reconcile(owned, runtime, why_none, clock)
        except _MALFORMED as error:
            raise InvalidJobError(
                f"TrainJob {owned.namespace}/{owned.name}: its resourcesPerNode, overrides or "
                f"patches cannot be merged into runtime {spec['runtimeRef']['name']!r}: {error!r}"
            ) from error
        if steps.create:
            requests = _gang_requests(owned, runtime) if runtime is not None else {}
            steps.create = [
                with_cache_key(
                    with_ssh_key_pair(_with_gang_requests(document, owned.body, requests))
                )
                for document in steps.create
            ]
        return steps

    return OwnerKind(reconcile.API_VERSION, reconcile.KIND, reconcile.REFS, step)


def _check(owned: Owned) -> None:
    subject = f"TrainJob {owned.namespace}/{owned.name}"
    try:
        spec = TrainJobSpec.model_validate(owned.body.get("spec") or {})
    except ValidationError as error:
        raise InvalidJobError(one_sentence(error, f"{subject}: spec")) from error
    if (spec.runtimeRef.kind or KINDS[0]) not in KINDS:
        raise InvalidJobError(
            f"{subject}: spec.runtimeRef.kind is {spec.runtimeRef.kind!r}; it must be "
            f"{' or '.join(KINDS)}"
        )
    if why := initializers.error(owned.body):
        raise InvalidJobError(f"{subject}: {why}")
    for variable in (spec.trainer.env if spec.trainer else None) or []:
        if variable.get("name") in RESERVED:
            raise InvalidJobError(
                f"{subject}: spec.trainer.env has {variable['name']}, which is set for torchrun; "
                f"use numNodes and numProcPerNode"
            )


def _check_runtime(owned: Owned, runtime: Json) -> None:
    """Check that a job's runtime has what the job refers to."""
    subject = f"TrainJob {owned.namespace}/{owned.name}"
    template = (runtime["spec"].get("template") or {}).get("spec") or {}
    jobs = {job["name"] for job in template.get("replicatedJobs") or []}
    name = runtime["metadata"]["name"]
    spec = owned.body["spec"]
    if not jobs:
        raise InvalidJobError(f"{subject}: runtime {name!r} has no replicatedJobs")
    for part in ("dataset", "model"):
        if (spec.get("initializer") or {}).get(part) and f"{part}-initializer" not in jobs:
            raise InvalidJobError(
                f"{subject}: spec.initializer.{part} needs a replicated job "
                f"{part}-initializer, and runtime {name!r} has: {', '.join(sorted(jobs))}"
            )
    overrides = [*(spec.get("podSpecOverrides") or []), *(spec.get("podTemplateOverrides") or [])]
    named = [target["name"] for item in overrides for target in item.get("targetJobs") or []]
    for patch in spec.get("runtimePatches") or []:
        inner = ((patch.get("trainingRuntimeSpec") or {}).get("template") or {}).get("spec") or {}
        named += [rjob["name"] for rjob in inner.get("replicatedJobs") or []]
    for target in named:
        if target not in jobs:
            raise InvalidJobError(
                f"{subject}: a patch names the replicated job {target!r}, and runtime {name!r} "
                f"has: {', '.join(sorted(jobs))}"
            )
    for error in (tuning_error, cache_error):
        if why := error(owned.body, runtime):
            raise InvalidJobError(f"{subject}: {why}")
    policy = runtime["spec"].get("mlPolicy") or {}
    injection = (policy.get("torch") or {}).get("envInjection") or {}
    if (targets := len(injection.get("targets") or [])) > PATCHES.most:
        raise InvalidJobError(
            f"{subject}: runtime {name!r} injects variables into {targets} targets; at most "
            f"{PATCHES.most} are allowed"
        )
    mpi = policy.get("mpi") or {}
    nodes = (spec.get("trainer") or {}).get("numNodes") or policy.get("numNodes") or 1
    length = listed_bytes(f"{owned.name}-node-0", nodes, len(f".{owned.name} slots=1\n"))
    if policy.get("mpi") is not None and (
        why := length_error("the host file", length, HOSTS_BYTES)
    ):
        raise InvalidJobError(f"{subject}: spec.trainer.numNodes is {nodes}: {why}")
    if mpi.get("mpiImplementation", "OpenMPI") != "OpenMPI":
        raise InvalidJobError(
            f"{subject}: runtime {name!r} requests {mpi['mpiImplementation']}; "
            f"only OpenMPI is supported"
        )
    if mpi.get("runLauncherAsNode") and LAUNCHER not in jobs:
        raise InvalidJobError(
            f"{subject}: runtime {name!r} has runLauncherAsNode and no replicated job {LAUNCHER!r}"
        )


def _gang_requests(owned: Owned, runtime: Json) -> dict[str, str]:
    """Return the requests of a runtime's podGroupPolicy as annotations."""
    name = runtime["metadata"]["name"]
    subject = f"TrainJob {owned.namespace}/{owned.name}: runtime {shown(name)}"
    try:
        policy = PodGroupPolicy.model_validate(runtime["spec"].get("podGroupPolicy") or {})
    except ValidationError as error:
        where = f"{subject}: spec.podGroupPolicy"
        raise InvalidJobError(one_sentence(error, where)) from error
    requests = {}
    if policy.coscheduling is not None and policy.coscheduling.scheduleTimeoutSeconds is not None:
        requests[_TIMEOUT] = str(policy.coscheduling.scheduleTimeoutSeconds)
    network = policy.volcano.networkTopology if policy.volcano is not None else None
    if network is not None:
        fields = dialects.from_volcano(network.model_dump(exclude_none=True), subject)
        for word, level in (fields.get("topology") or {}).items():
            requests[f"{dialects.OURS}topology-{word}"] = level
    return requests


def _with_gang_requests(document: Json, job: Json, requests: dict[str, str]) -> Json:
    """Return a JobSet with a TrainJob's labels and annotations about queue and topology.

    The `requests` of its runtime count if the TrainJob has none.
    """
    if document["kind"] != "JobSet":
        return document
    metadata = dict(document["metadata"])
    for key in ("labels", "annotations"):
        given = job["metadata"].get(key) or {}
        kept = {
            name: value
            for name, value in given.items()
            if name in names.QUEUE_LABELS
            or name in dialects.KEYS
            or name.startswith(f"{names.GROUP}/")
        }
        metadata[key] = kept | (metadata.get(key) or {})
    own = metadata["annotations"]
    has_topology = any("topology" in key for key in own if key in dialects.KEYS)
    metadata["annotations"] = {
        key: value for key, value in requests.items() if key == _TIMEOUT or not has_topology
    } | own
    return document | {"metadata": metadata}
