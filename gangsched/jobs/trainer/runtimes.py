"""Turns a TrainJob and its runtime into a JobSet: patches, sizes, variables of frameworks.

Source: kubeflow/trainer v2.0 and v2.3, pkg/runtime. Beyond it, a TrainJob without a `trainer` gets
the variables too.
"""

import copy
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from gangsched.jobs.common.containers import merge_variables, mount, put_variables
from gangsched.jobs.common.merge import merge
from gangsched.jobs.common.model import ROOT_SSH, Json
from gangsched.jobs.trainer import datacache, torchtune
from gangsched.jobs.trainer.initializers import INITIALIZERS, Tokens, initialize

STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
FRAMEWORK = "trainer.kubeflow.org/framework"
PORT = 29500
NODE = "node"
LAUNCHER = "launcher"
TRAINER = "trainer"
RESERVED = (
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_NODE_RANK",
    "PET_MASTER_ADDR",
    "PET_MASTER_PORT",
)

_INDEX = {
    "fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
}
_HOSTFILE_MOUNT = "/etc/mpi"
_GPUS = ("nvidia.com/gpu", "amd.com/gpu")


@dataclass(slots=True)
class TrainJobObjects:
    """The objects of a TrainJob: a JobSet and, for MPI, a host file and a Secret with keys.

    `tokens` is the Secret with the tokens of its initializers, and `cache` that with the key of its
    data cache.
    """

    jobset: Json
    hostfile: Json | None = None
    keys: str = ""
    tokens: Json | None = None
    cache: Json | None = None


def framework_of(runtime: Json) -> str:
    """Return the framework of a runtime, by its label, its policy, or its name."""
    metadata = runtime["metadata"]
    if label := (metadata.get("labels") or {}).get(FRAMEWORK):
        return str(label)
    for prefix in ("deepspeed", "mlx", "torchtune"):
        if metadata["name"].startswith(prefix):
            return prefix
    policy = runtime["spec"].get("mlPolicy") or {}
    names = ("torch", "mpi", "jax", "xgboost")
    return next((name for name in names if name in policy), "custom")


def tuning_error(job: Json, runtime: Json) -> str:
    """Return what torchtune does not support in a TrainJob, or nothing."""
    resolution = _Resolution(job, runtime)
    if not resolution.uses_torchtune:
        return ""
    resolution.plan()
    containers = [container for rjob, container in resolution.nodes() if _step(rjob) == TRAINER]
    return resolution.tuning(containers[0]).error() if containers else ""


def cache_error(job: Json, runtime: Json) -> str:
    """Return what is wrong with the data cache of a TrainJob on a runtime, or nothing."""
    resolution = _Resolution(job, runtime)
    resolution.apply_patches()
    for rjob in resolution.spec["replicatedJobs"]:
        if _step(rjob) == datacache.WORKER:
            return datacache.workers_error(rjob)
    return ""


def resolve(job: Json, runtime: Json) -> TrainJobObjects:
    """Return the objects of a TrainJob on a runtime."""
    return _Resolution(job, runtime).plan()


class _Resolution:
    """One TrainJob on one runtime."""

    def __init__(self, job: Json, runtime: Json) -> None:
        self.name: str = job["metadata"]["name"]
        self.runtime: str = runtime["metadata"]["name"]
        self.job = job
        self.trainer: Json = job["spec"].get("trainer") or {}
        self.policy: Json = runtime["spec"].get("mlPolicy") or {}
        template = runtime["spec"]["template"]
        self.metadata: Json = copy.deepcopy(template.get("metadata") or {})
        self.spec: Json = copy.deepcopy(template.get("spec") or {})
        self.mpi: Json | None = self.policy.get("mpi")
        self.tokens = Tokens(job)
        builtin = next((c.get("command") or [] for r, c in self.nodes() if _step(r) == TRAINER), [])
        self._runs_builtin = bool(builtin) and builtin[:1] != torchtune.ENTRY[:1]

    def plan(self) -> TrainJobObjects:
        self.apply_patches()
        nodes = self.trainer.get("numNodes") or self.policy.get("numNodes") or 1
        for rjob in self.spec["replicatedJobs"]:
            step = _step(rjob)
            if step == TRAINER:
                rjob["replicas"] = 1
                if self.mpi is None or rjob["name"] != LAUNCHER:
                    self._set_size(rjob, nodes)
            elif step in INITIALIZERS:
                rjob["replicas"] = 1
                for container in _pod(rjob).get("containers") or []:
                    if container["name"] == step:
                        initialize(_pod(rjob), container, self._initializer(step), self.tokens)
            if step == TRAINER or self._is_mpi_node(rjob):
                self._apply_trainer(rjob, command=step == TRAINER)
        plan = TrainJobObjects({})
        if self.mpi is not None:
            self._run_mpi(plan, nodes)
        for rjob, container in self.nodes():
            step = _step(rjob)
            if step != TRAINER:
                continue
            variables = self._variables(nodes, container)
            if variables:
                put_variables(container, variables)
                self._inject(variables)
                ports = container.setdefault("ports", [])
                if not any(port.get("containerPort") == PORT for port in ports):
                    ports.append({"containerPort": PORT})
        self._configure_cache(plan)
        plan.jobset, plan.tokens = self._jobset(), self.tokens.secret()
        return plan

    def _configure_cache(self, plan: TrainJobObjects) -> None:
        """Configure the data cache, if the runtime has a head and workers of one."""
        steps = {_step(rjob): rjob for rjob in self.spec["replicatedJobs"]}
        head, worker = steps.get(datacache.HEAD), steps.get(datacache.WORKER)
        if head is None or worker is None:
            return
        readers = [container for rjob, container in self.nodes() if _step(rjob) == TRAINER]
        plan.cache = datacache.key_secret(datacache.configure(self.job, head, worker, readers))

    def _initializer(self, step: str) -> Json:
        """Return what the TrainJob sets of an initializer."""
        parts = self.job["spec"].get("initializer") or {}
        return parts.get(INITIALIZERS[step]) or {}

    # -- patches ------------------------------------------------------------------------------

    def apply_patches(self) -> None:
        """Apply the TrainJob's patches to the runtime's template."""
        spec = self.job["spec"]
        for key in ("labels", "annotations"):
            self.metadata[key] = (self.metadata.get(key) or {}) | (spec.get(key) or {})
        for fields in spec.get("podSpecOverrides") or []:
            self._override(fields, {"spec": fields | {"targetJobs": None}})
        for fields in spec.get("podTemplateOverrides") or []:
            self._override(fields, fields | {"targetJobs": None})
        for patch in spec.get("runtimePatches") or []:
            template = (patch.get("trainingRuntimeSpec") or {}).get("template") or {}
            for key in ("labels", "annotations"):
                self.metadata[key] |= (template.get("metadata") or {}).get(key) or {}
            self.spec = merge(self.spec, template.get("spec") or {})

    def _override(self, override: Json, fields: Json) -> None:
        targets = [target["name"] for target in override.get("targetJobs") or []]
        for rjob in self.spec["replicatedJobs"]:
            if rjob["name"] in targets:
                job = rjob["template"]["spec"]
                job["template"] = merge(job["template"], fields)

    def _jobset(self) -> Json:
        suspend = self.job["spec"].get("suspend")
        if suspend is not None:
            self.spec["suspend"] = suspend
        return {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {
                "name": self.name,
                "labels": self.metadata.get("labels") or {},
                "annotations": self.metadata.get("annotations") or {},
            },
            "spec": self.spec,
        }

    # -- containers ---------------------------------------------------------------------------

    def nodes(self) -> Iterator[tuple[Json, Json]]:
        """Yield every container that trains, with its replicated job."""
        for rjob in self.spec["replicatedJobs"]:
            for container in _pod(rjob).get("containers") or []:
                if container["name"] == NODE:
                    yield rjob, container

    def _is_mpi_node(self, rjob: Json) -> bool:
        whole = self.mpi is not None and bool(self.mpi.get("runLauncherAsNode"))
        return whole and rjob["name"] == NODE

    def _set_size(self, rjob: Json, nodes: int) -> None:
        rjob["template"]["spec"] |= {"parallelism": nodes, "completions": nodes}

    def _apply_trainer(self, rjob: Json, *, command: bool) -> None:
        """Apply the TrainJob's trainer to the container named node."""
        for container in _pod(rjob).get("containers") or []:
            if container["name"] != NODE:
                continue
            if resources := self.trainer.get("resourcesPerNode"):
                container["resources"] = merge(container.get("resources") or {}, resources)
            runtime_command = container.get("command") or []
            for key in ("image", "command", "args"):
                if command and self.trainer.get(key) and not (key == "command" and self._is_kept):
                    container[key] = self.trainer[key]
            if command and self.uses_torchtune:
                address = f"{self._host}:{PORT}"
                container["command"] = self.tuning(container).command(address, runtime_command)
            merge_variables(container.setdefault("env", []), self.trainer.get("env") or [])

    # -- variables of frameworks ----------------------------------------------------------------

    @property
    def _host(self) -> str:
        return f"{self.name}-{NODE}-0-0.{self.name}"

    @property
    def uses_torchtune(self) -> bool:
        """Return whether torchtune runs, which is configured by its command line."""
        return "torch" in self.policy and self._is_tuned and not self._runs_builtin

    @property
    def _is_tuned(self) -> bool:
        """Return whether the SDK's BuiltinTrainer wrote the trainer: it knows torchtune alone."""
        return bool(self.trainer.get("command") == torchtune.ENTRY)

    @property
    def _is_kept(self) -> bool:
        """Return whether the runtime's own program reads the arguments of BuiltinTrainer."""
        return self._is_tuned and self._runs_builtin

    def tuning(self, container: Json) -> torchtune.Tuning:
        """Return the parameters of a torchtune run."""
        nodes = self.trainer.get("numNodes") or self.policy.get("numNodes") or 1
        count = self._torch_processes()
        arguments = self.trainer.get("args") or []
        processes = "auto" if count is None else str(count)
        return torchtune.Tuning(self.runtime, nodes, processes, _gpus(container), arguments)

    def _torch_processes(self) -> Any:
        """Return the processes of a node as the TrainJob or the runtime requests them."""
        count = self.trainer.get("numProcPerNode")
        return (self.policy["torch"] or {}).get("numProcPerNode") if count is None else count

    def _variables(self, nodes: int, container: Json) -> dict[str, Any]:
        host = self._host
        if "torch" in self.policy:
            variables: dict[str, Any] = {
                "PET_NNODES": str(nodes),
                "PET_NPROC_PER_NODE": self._processes(container),
                "PET_NODE_RANK": _INDEX,
            }
            if self.uses_torchtune:
                return variables
            return variables | {"PET_MASTER_ADDR": host, "PET_MASTER_PORT": str(PORT)}
        if "jax" in self.policy:
            return {
                "JAX_NUM_PROCESSES": str(nodes),
                "JAX_PROCESS_ID": _INDEX,
                "JAX_COORDINATOR_ADDRESS": f"{host}:{PORT}",
            }
        if "xgboost" in self.policy:
            return {
                "DMLC_TRACKER_URI": host,
                "DMLC_TRACKER_PORT": str(PORT),
                "DMLC_TASK_ID": _INDEX,
                "DMLC_NUM_WORKER": str(nodes * max(_gpus(container), 1)),
            }
        return {}

    def _inject(self, variables: dict[str, Any]) -> None:
        """Add torchrun's variables to the other containers that the runtime names."""
        injection = (self.policy.get("torch") or {}).get("envInjection") or {}
        for target in injection.get("targets") or []:
            named = set(target["containerNames"])
            for rjob in self.spec["replicatedJobs"]:
                if rjob["name"] != target["jobName"]:
                    continue
                pod = _pod(rjob)
                for container in (*(pod.get("initContainers") or []), *pod["containers"]):
                    if container["name"] in named:
                        put_variables(container, variables)

    def _processes(self, container: Json) -> str:
        """Return torchrun's processes a node: as requested, else one a GPU or a core."""
        count = self._torch_processes()
        if count not in (None, "auto"):
            return str(count)
        return "auto" if _gpus(container) else str(max(_cpus(container), 1))

    # -- MPI ----------------------------------------------------------------------------------

    def _run_mpi(self, plan: TrainJobObjects, nodes: int) -> None:
        """Mount the keys into launcher and nodes, and the host file into the launcher."""
        assert self.mpi is not None, "checked before"  # noqa: S101
        as_node = bool(self.mpi.get("runLauncherAsNode"))
        names = {rjob["name"] for rjob in self.spec["replicatedJobs"]}
        for rjob in self.spec["replicatedJobs"]:
            if rjob["name"] == NODE:
                rjob["replicas"] = 1
                self._set_size(rjob, max(nodes - 1, 1) if as_node and LAUNCHER in names else nodes)
        slots = self._slots()
        plan.keys = f"{self.name}-mpi-ssh-auth"
        for rjob, container in self.nodes():
            if rjob["name"] not in (NODE, LAUNCHER):
                continue
            where = self.mpi.get("sshAuthMountPath") or ROOT_SSH
            mount(_pod(rjob), container, _keys_volume(plan.keys), where)
            if rjob["name"] == LAUNCHER:
                mount(_pod(rjob), container, _hosts_volume(self.name), _HOSTFILE_MOUNT)
                put_variables(
                    container,
                    {
                        "OMPI_MCA_orte_default_hostfile": f"{_HOSTFILE_MOUNT}/hostfile",
                        "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
                        "OMPI_MCA_orte_set_default_slots": str(slots),
                        "OMPI_MCA_plm_rsh_args": "-o ConnectionAttempts=10",
                    },
                )
        lines = []
        for rjob in sorted(self.spec["replicatedJobs"], key=lambda job: job["name"] != LAUNCHER):
            if rjob["name"] == NODE or (rjob["name"] == LAUNCHER and as_node):
                count = rjob["template"]["spec"].get("parallelism") or 1
                stem = f"{self.name}-{rjob['name']}-0"
                lines += [f"{stem}-{i}.{self.name} slots={slots}\n" for i in range(count)]
        plan.hostfile = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": f"{self.name}-mpi-hostfile"},
            "data": {"hostfile": "".join(lines)},
        }

    def _slots(self) -> int:
        """Return processes a node: as requested, else one a GPU."""
        assert self.mpi is not None, "checked before"  # noqa: S101
        given = self.trainer.get("numProcPerNode") or self.mpi.get("numProcPerNode") or 1
        if self.trainer.get("numProcPerNode") is None and given == 1:
            return max((_gpus(container) for _, container in self.nodes()), default=1) or 1
        return int(given)


def _step(rjob: Json) -> str:
    labels = (rjob["template"].get("metadata") or {}).get("labels") or {}
    return str(labels.get(STEP, ""))


def _pod(rjob: Json) -> Json:
    spec: Json = rjob["template"]["spec"]["template"].setdefault("spec", {})
    return spec


def _keys_volume(secret: str) -> Json:
    items = [
        {"key": "ssh-privatekey", "path": "id_rsa", "mode": 0o640},
        {"key": "ssh-publickey", "path": "id_rsa.pub", "mode": 0o644},
        {"key": "ssh-publickey", "path": "authorized_keys", "mode": 0o644},
    ]
    source = {"secretName": secret, "defaultMode": 0o400, "items": items}
    return {"name": "mpi-ssh-auth", "secret": source}


def _hosts_volume(name: str) -> Json:
    items = [{"key": "hostfile", "path": "hostfile", "mode": 0o444}]
    return {"name": "mpi-hostfile", "configMap": {"name": f"{name}-mpi-hostfile", "items": items}}


def _gpus(container: Json) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    requests = (container.get("resources") or {}).get("requests") or {}
    counts = (limits.get(name) or requests.get(name) for name in _GPUS)
    return int(next((count for count in counts if count), 0))


def _cpus(container: Json) -> int:
    """Return the requested cores, rounded up; without a request, those of the limit."""
    resources = container.get("resources") or {}
    text = str((resources.get("requests") or {}).get("cpu") or "")
    text = text or str((resources.get("limits") or {}).get("cpu") or "0")
    try:
        if text.endswith("m"):
            return math.ceil(Decimal(text[:-1]) / 1000)
        return math.ceil(Decimal(text))
    except InvalidOperation:
        return 0  # the API server rejects the pod, with the reason
