"""The input and output of a training job's reconcile. Pod templates stay opaque JSON."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

GROUP_VERSION = "gangsched.io/v1beta1"
"""The API version of the PodGroups of jobs, as in gangsched/api/names.py."""

GROUP_LABEL = "gangsched.io/pod-group"
"""Pod label: the name of its PodGroup."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobRole:
    """One replica type. `restart_policy` is Always, OnFailure, Never or ExitCode.

    `topology` is that of the PodGroup's role. `pod` is the name of the only pod of a role, if that
    name has no index.
    """

    type: str
    replicas: int
    restart_policy: str
    template: Json
    topology: Json | None = None
    pod: str = ""


@dataclass(frozen=True, slots=True)
class Elastic:
    """torchrun's elastic options, as the user wrote them.

    With `metrics` (autoscaling/v2) a HorizontalPodAutoscaler changes the number of workers.
    """

    minimum: int
    maximum: int
    environment: Mapping[str, str]
    metrics: tuple[Json, ...] = ()


ROOT_SSH = "/root/.ssh"
"""Where both MPI APIs mount keys in a container by default."""

V1, V2BETA1 = "kubeflow.org/v1", "kubeflow.org/v2beta1"


@dataclass(frozen=True, slots=True)
class Mpi:
    """The fields that only an MPIJob has; `version` is the API version of the user's object.

    `slots` are the processes of a worker, and of a launcher that works itself. With `waits`, the
    launcher is created once all workers are ready. In v1, `kubectl exec` enters `container`.
    """

    version: str = V2BETA1
    slots: int = 1
    launcher_works: bool = False
    waits: bool = False
    implementation: str = "OpenMPI"
    ssh_mount: str = ROOT_SSH
    container: str = ""


@dataclass(frozen=True, slots=True)
class RunLimits:
    """runPolicy, in seconds and counts; None means unlimited.

    `clean_pods` is None, Running, All, or empty if the user set no policy.
    """

    clean_pods: str = ""
    ttl_s: int | None = None
    deadline_s: int | None = None
    backoff_limit: int | None = None
    suspend: bool = False


@dataclass(frozen=True, slots=True)
class GangPolicy:
    """How the job's gang is queued; it is restarted as a whole at most `gang_restarts` times.

    `extra_spec` are further fields of the PodGroup's spec: its placement constraints.
    """

    minimum: int | None = None
    queue: str = "default"
    priority_class: str = ""
    timeout_s: int = 60
    gang_restarts: int = 0
    extra_spec: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A training job as its user declared it, and the status written so far.

    `kind` names its framework. A TFJob's workers may come and go (`dynamic_workers`), or must all
    succeed (`all_workers`); the addresses of its pods end with `cluster_domain`. Pods get the name
    `scheduler` if their template has none; gangsched serves all `scheduler_names`.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    roles: tuple[JobRole, ...]
    limits: RunLimits
    gang: GangPolicy
    scheduler: str
    nproc_per_node: str | None = None
    elastic: Elastic | None = None
    all_workers: bool = False
    dynamic_workers: bool = False
    cluster_domain: str = ""
    mpi: Mpi = Mpi()
    scheduler_names: frozenset[str] = frozenset()
    status: Mapping[str, Any] = field(default_factory=dict)
    unknown_keys: str = ""
    """A sentence about unknown labels and annotations of gangsched on the job."""

    def role(self, kind: str) -> JobRole | None:
        """Return the role of a type, if the job has it."""
        return next((role for role in self.roles if role.type == kind), None)

    def is_placed_here(self, role: JobRole) -> bool:
        """Return whether gangsched places a role's pods, by the scheduler of its template."""
        name = role.template["spec"].get("schedulerName") or self.scheduler
        return name in (self.scheduler_names or {self.scheduler})

    @property
    def total(self) -> int:
        """Return the number of pods."""
        return sum(role.replicas for role in self.roles)

    def pod_name(self, role: JobRole, index: int) -> str:
        """Return a pod's name, which is also its Service's and its DNS name."""
        return role.pod or f"{self.name}-{role.type.lower()}-{index}"


@dataclass(frozen=True, slots=True)
class PodView:
    """A pod of the job; `exit_code` is that of the main container's last end.

    `disrupted` pods were evicted for another gang, or saved their work since their stop was
    announced (`announced`; an `answered` pod reported the save). `cut_short` pods ended after their
    deletion was requested. The end of either does not count for the job. `stopping` pods have a
    deadline that is over.
    """

    name: str
    uid: str
    role: str
    phase: str
    restarts: int = 0
    exit_code: int | None = None
    reason: str = ""
    terminating: bool = False
    disrupted: bool = False
    announced: bool = False
    answered: bool = False
    cut_short: bool = False
    stopping: bool = False
    ready: bool = False
    origin: Json | None = None
    """How a pod of another controller names its gang and scheduler; None for gangsched's pods."""

    @property
    def done(self) -> bool:
        """Return whether the pod succeeded, and not because it was deleted."""
        return self.phase == "Succeeded" and not self.disrupted and not self.cut_short


def with_answers(pods: Iterable[PodView]) -> tuple[PodView, ...]:
    """Return the pods of a job by name, with what an answer to an announced stop means for all.

    Once one pod reported the checkpoint, no exit code counts: the job is not complete. Before, a
    pod that exits with 0 has done its work, and one that fails was stopped.
    """
    known = sorted(pods, key=lambda pod: pod.name)
    saved = any(pod.answered for pod in known)
    return tuple(
        replace(pod, disrupted=True) if pod.announced and (saved or pod.phase == "Failed") else pod
        for pod in known
    )


@dataclass(frozen=True, slots=True)
class GroupView:
    """The job's PodGroup as it is now: its phase and the node reserved for each pod."""

    uid: str
    phase: str = ""
    message: str = ""
    assignments: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Observed:
    """The existing objects of the job; `vanished` pods are gone for a reason that is not known.

    `wait_reason` is why the gang may not be declared yet, or empty. `handled_terminations` are the
    uids of pods that this controller deleted, or of which a step has handled the termination.
    `has_predecessor` says whether pods of a deleted job of the same name still exist.
    """

    pods: tuple[PodView, ...] = ()
    services: frozenset[str] = frozenset()
    group: GroupView | None = None
    vanished: tuple[PodView, ...] = ()
    wait_reason: str = ""
    handled_terminations: frozenset[str] = frozenset()
    has_predecessor: bool = False


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An Event to write about the job; `type` is Normal or Warning.

    Of several Events with the same `once`, only the first is written.
    """

    type: str
    reason: str
    message: str
    once: str = ""

    def among(self, written: Iterable["JobEvent"]) -> bool:
        """Return whether the Event is among Events that were written."""
        return any(old == self or (self.once and old.once == self.once) for old in written)


@dataclass(frozen=True, slots=True)
class Intent:
    """An object to create once the gang has its nodes: `count` pods like it, or a Job.

    `user_spec` is the pod spec as the user wrote it.
    """

    count: int
    document: Json
    user_spec: Json


@dataclass(slots=True)
class Actions:
    """The actions of one step; `status` None means unchanged. Stopped pods keep their logs.

    A group is only written if all `intents` can be created. `documents` are created or restored
    before any pod is created; the objects in `drop` are deleted.
    """

    delete_pods: list[PodView] = field(default_factory=list)
    stop_pods: list[PodView] = field(default_factory=list)
    delete_services: list[str] = field(default_factory=list)
    delete_group: bool = False
    put_group: Json | None = None
    intents: list[Intent] = field(default_factory=list)
    documents: list[Json] = field(default_factory=list)
    drop: list[Json] = field(default_factory=list)
    create_services: list[Json] = field(default_factory=list)
    create_pods: list[Json] = field(default_factory=list)
    status: Json | None = None
    events: list[JobEvent] = field(default_factory=list)
    delete_job: bool = False
    requeue_in_s: float | None = None
