"""The objects of a submitted job: a JobSet for each task of an array, and one Secret for all.

A JobSet has one Job with an indexed pod for each node. The Secret has the script, the program of
the pods, and the key by which they know each other.
"""

import json
import re
import secrets
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from gangsched.api.names import (
    AFTER_ANNOTATION,
    ARRAY_LABEL,
    GRACE_ANNOTATION,
    JOB_ID_LABEL,
    JOB_NAME_LABEL,
    QUEUE_LABEL,
    RUNTIME_ANNOTATION,
    SERIES_ANNOTATION,
    TASK_LABEL,
)
from gangsched.core.model.pods import GPU
from gangsched.submission.job_request import JobRequest

Json = dict[str, Any]

PORT = 38291
FOLDER = "/etc/gangsched-batch"
POD_MODULES = (
    "__init__.py", "__main__.py", "hosts.py", "link.py", "script.py", "steps.py", "tasks.py",
)  # fmt: skip
"""The modules of `gangsched.submission.pod`, which a job has as its package `pod`."""

_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from pod.__main__ import main; main()"
_ROLE = "nodes"
_STEM_LETTERS = 30
_SERIES_LETTERS = 100
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class PodSettings:
    """What sbatch has no option for: the image, and how pods reach nodes and files."""

    image: str
    volumes: tuple[tuple[str, str], ...] = ()
    """(PersistentVolumeClaim, path) of each."""

    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Json, ...] = ()


@dataclass(frozen=True, slots=True)
class Submission:
    """A checked request with its script, its number and its user."""

    request: JobRequest
    script: str
    arguments: tuple[str, ...]
    number: int
    namespace: str
    pods: PodSettings
    dependencies: tuple[tuple[str, str], ...] | None = None
    """(condition, name of a job); None: as the request has them."""

    user: str = ""

    @property
    def stem(self) -> str:
        """Return the beginning of the names of all its objects."""
        text = _NOT_IN_NAMES.sub("-", self.request.name.lower()).strip("-")[:_STEM_LETTERS]
        return f"{text.strip('-') or 'job'}-{self.number}"

    def names(self) -> list[str]:
        """Return the names of its JobSets."""
        array = self.request.array
        if array is None:
            return [self.stem]
        return [f"{self.stem}-{index}" for index in array.indices]


def _source(name: str) -> str:
    return files("gangsched.submission.pod").joinpath(name).read_text()


def secret(submission: Submission) -> Json:
    """Return the Secret of a submission."""
    program = {name: _source(name) for name in POD_MODULES}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": submission.stem,
            "namespace": submission.namespace,
            "labels": {ARRAY_LABEL: str(submission.number)},
        },
        "stringData": {
            "script": submission.script,
            "key": secrets.token_hex(32),
            **program,
        },
    }


def jobsets(submission: Submission) -> list[Json]:
    """Return the JobSets of a submission, for an array one for each task."""
    array = submission.request.array
    if array is None:
        return [_jobset(submission, submission.stem, submission.number, None)]
    return [
        _jobset(submission, name, submission.number + position, index)
        for position, (name, index) in enumerate(
            zip(submission.names(), array.indices, strict=True)
        )
    ]


def _jobset(submission: Submission, name: str, job_id: int, index: int | None) -> Json:
    request = submission.request
    labels = {JOB_ID_LABEL: str(job_id)}
    if _LABEL.fullmatch(request.name):
        labels[JOB_NAME_LABEL] = request.name
    if request.queue:
        labels[QUEUE_LABEL] = request.queue
    if index is not None:
        labels |= {ARRAY_LABEL: str(submission.number), TASK_LABEL: str(index)}
    annotations = _annotations(submission)
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": name,
            "namespace": submission.namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            **({"suspend": True} if request.hold else {}),
            "replicatedJobs": [
                {
                    "name": _ROLE,
                    "replicas": 1,
                    "template": {"spec": _job(submission, name, job_id, index)},
                }
            ],
        },
    }


def _annotations(submission: Submission) -> dict[str, str]:
    request = submission.request
    found: dict[str, str] = {}
    if request.time_s is not None:
        found["gangsched.io/max-runtime-seconds"] = str(request.time_s)
        found[RUNTIME_ANNOTATION] = str(request.time_min_s or request.time_s)
    if request.nodes > 1:
        found["gangsched.io/spread"] = "host=1"
    if request.gpu_type:
        found["gangsched.io/gpu-kinds"] = request.gpu_type.upper()
    if request.exclude:
        found["gangsched.io/avoid-nodes"] = ",".join(request.exclude)
    if request.exclusive:
        found["gangsched.io/exclusive-topology"] = "host"
    if request.signal:
        found[GRACE_ANNOTATION] = str(request.warning_s)
    dependencies = submission.dependencies
    if dependencies is None:
        dependencies = request.dependencies
    if dependencies:
        found[AFTER_ANNOTATION] = ",".join(f"{how}:{job}" for how, job in dependencies)
    if request.singleton:
        found[SERIES_ANNOTATION] = f"{_singleton(request.name, submission.user)}:1"
    elif request.array is not None and request.array.at_once is not None:
        found[SERIES_ANNOTATION] = f"{submission.stem}:{request.array.at_once}"
    return found


def _singleton(name: str, user: str) -> str:
    """Return the series of the jobs of one name and one user."""
    words = (_NOT_IN_NAMES.sub("-", text.lower()).strip("-") for text in (name, user))
    return ".".join(word[:_SERIES_LETTERS].strip("-") for word in words if word) or "job"


def _job(submission: Submission, name: str, job_id: int, index: int | None) -> Json:
    request = submission.request
    disruption = "Ignore" if request.requeue else "FailJob"
    return {
        "parallelism": request.nodes,
        "completions": request.nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "podFailurePolicy": {
            "rules": [
                {
                    "action": disruption,
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                }
            ]
        },
        "template": {
            "metadata": {"labels": {JOB_ID_LABEL: str(job_id)}},
            "spec": _pod(submission, _settings(submission, name, job_id, index)),
        },
    }


def _pod(submission: Submission, settings: Json) -> Json:
    request, pods = submission.request, submission.pods
    resources: Json = {"cpu": str(request.cpus_per_task * request.tasks_per_node)}
    if request.memory is not None:
        resources["memory"] = str(request.memory)
    if request.gpus_per_node:
        resources[GPU] = str(request.gpus_per_node)
    limits = {key: value for key, value in resources.items() if key != "cpu"}
    mounts: list[Json] = [{"name": "batch", "mountPath": FOLDER, "readOnly": True}]
    items = [{"key": key, "path": key} for key in ("script", "key")]
    items += [{"key": name, "path": f"pod/{name}"} for name in POD_MODULES]
    source = {"secretName": submission.stem, "items": items}
    volumes: list[Json] = [{"name": "batch", "secret": source}]
    for number, (claim, path) in enumerate(pods.volumes):
        name = f"volume-{number}"
        mounts.append({"name": name, "mountPath": path})
        volumes.append({"name": name, "persistentVolumeClaim": {"claimName": claim}})
    container: Json = {
        "name": "batch",
        "command": ["python3", "-c", _START, FOLDER],
        "env": [{"name": "GANGSCHED_BATCH_SETTINGS", "value": json.dumps(settings)}],
        "image": pods.image,
        "resources": {"requests": resources, "limits": limits},
        "volumeMounts": mounts,
    }
    spec: Json = {
        "schedulerName": "gangsched",
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": volumes,
        "terminationGracePeriodSeconds": 30,
        "automountServiceAccountToken": False,
    }
    if request.priority_class:
        spec["priorityClassName"] = request.priority_class
    if pods.node_selector:
        spec["nodeSelector"] = dict(pods.node_selector)
    if pods.tolerations:
        spec["tolerations"] = list(pods.tolerations)
    return spec


def _settings(submission: Submission, name: str, job_id: int, index: int | None) -> Json:
    """Return what the program of the pods needs to know."""
    request = submission.request
    hosts = [f"{name}-{_ROLE}-0-{node}.{name}" for node in range(request.nodes)]
    patterns = {"j": str(job_id), "x": request.name, "A": str(submission.number)}
    patterns |= {"N": hosts[0], "n": "0", "t": "0", "s": "batch", "J": f"{job_id}.batch"}
    patterns["a"] = str(index if index is not None else 4294967294)  # as Slurm writes none
    seconds = request.time_s
    warned = bool(request.signal) and seconds is not None
    return {
        "hosts": hosts,
        "port": PORT,
        "tasks": request.tasks,
        "arguments": list(submission.arguments),
        "environment": slurm_variables(submission, name, job_id, index),
        "patterns": patterns,
        "output": request.output,
        "error": request.error,
        "append": request.append,
        "directory": request.directory,
        "signal": request.signal if warned else "",
        "signal_after_s": (seconds or 0) - request.warning_s,
        "signal_to_script": request.signal_to_script,
    }


def slurm_variables(
    submission: Submission, name: str, job_id: int, index: int | None
) -> dict[str, str]:
    """Return the variables that Slurm sets for a script."""
    request = submission.request
    host = f"{name}-{_ROLE}-0-"
    nodes = f"{host}0.{name}" if request.nodes == 1 else f"{host}[0-{request.nodes - 1}].{name}"
    per_node, more = divmod(request.tasks, request.nodes)
    counts = f"{per_node}(x{request.nodes})" if request.nodes > 1 else str(per_node)
    if more:
        counts = ",".join(
            f"{count}(x{times})" if times > 1 else str(count)
            for count, times in ((per_node + 1, more), (per_node, request.nodes - more))
        )
    found = {
        "SLURM_JOB_ID": str(job_id),
        "SLURM_JOBID": str(job_id),
        "SLURM_JOB_NAME": request.name,
        "SLURM_JOB_NODELIST": nodes,
        "SLURM_NODELIST": nodes,
        "SLURM_JOB_NUM_NODES": str(request.nodes),
        "SLURM_NNODES": str(request.nodes),
        "SLURM_NTASKS": str(request.tasks),
        "SLURM_NPROCS": str(request.tasks),
        "SLURM_TASKS_PER_NODE": counts,
        "SLURM_NTASKS_PER_NODE": str(request.tasks_per_node),
        "SLURM_CPUS_PER_TASK": str(request.cpus_per_task),
        "SLURM_CPUS_ON_NODE": str(request.cpus_per_task * request.tasks_per_node),
        "SLURM_JOB_CPUS_PER_NODE": str(request.cpus_per_task * request.tasks_per_node),
        "SLURM_JOB_PARTITION": request.queue or "default",
        "SLURM_JOB_QOS": request.priority_class,
        "SLURM_SUBMIT_DIR": request.directory or "/tmp",  # noqa: S108 -- what a pod has
        "SLURM_SUBMIT_HOST": "gangsched",
        "SLURM_CLUSTER_NAME": "kubernetes",
        "SLURM_NODEID": "0",
        "SLURM_PROCID": "0",
        "SLURM_LOCALID": "0",
        "SLURM_RESTART_COUNT": "0",
    }
    if request.gpus_per_node:
        found["SLURM_GPUS_ON_NODE"] = str(request.gpus_per_node)
        found["SLURM_GPUS_PER_NODE"] = str(request.gpus_per_node)
        found["SLURM_GPUS"] = str(request.gpus_per_node * request.nodes)
    if request.memory is not None:
        found["SLURM_MEM_PER_NODE"] = str(request.memory >> 20)
    array = request.array
    if array is not None and index is not None:
        found |= {
            "SLURM_ARRAY_JOB_ID": str(submission.number),
            "SLURM_ARRAY_TASK_ID": str(index),
            "SLURM_ARRAY_TASK_COUNT": str(len(array.indices)),
            "SLURM_ARRAY_TASK_MIN": str(array.indices[0]),
            "SLURM_ARRAY_TASK_MAX": str(array.indices[-1]),
            "SLURM_ARRAY_TASK_STEP": str(array.step),
        }
    return found | dict(request.export)
