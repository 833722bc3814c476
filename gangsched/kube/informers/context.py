"""The interfaces that informers use: fact sink, gang lookup, status sink."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gangsched.api.keys import REASON
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId, PodUid
from gangsched.core.model.queues import Queue
from gangsched.kube.decoding.schemas import Pod
from gangsched.kube.informers.planned_pod_limit import PlannedPodLimit
from gangsched.kube.status.events import ObjectRef
from gangsched.metrics import Metrics


class FactSink(Protocol):
    """Receives facts about the cluster."""

    def observe(self, fact: f.Fact) -> None:
        """Give a fact to the engine, and carry out the orders that follow."""

    def declare(self, gang: Gang) -> None:
        """Give the engine the declaration of a gang."""

    def report(self, report: o.Report) -> None:
        """Report on a gang, beside the reports of the engine."""


class GangLookup(Protocol):
    """The parts of the engine that informers read."""

    @property
    def gangs(self) -> Mapping[GangId, GangState]:
        """All gangs."""

    @property
    def queues(self) -> Mapping[str, Queue]:
        """All queues."""

    def pod(self, uid: PodUid) -> f.PodSeen | None:
        """Return the last fact about a pod."""

    def reconciled(self, fact: f.PodSeen) -> f.PodSeen:
        """Return the fact about a pod with the gang that the pod is already a member of."""


class StraysSink(Protocol):
    """Receives pods of our groups that name another scheduler."""

    def meet(self, pod: Pod, fact: f.PodSeen, served: Collection[str]) -> bool:
        """Record a pod; return whether another scheduler has to place it and has not yet."""

    def forget(self, uid: str) -> None:
        """Forget a deleted pod."""


class StatusSink(Protocol):
    """Receives the facts that the status of a gang's object shows."""

    @property
    def strays(self) -> StraysSink:
        """The sink of pods that another scheduler has to place."""

    def subject(self, gang: GangId, subject: ObjectRef) -> None:
        """Attach a gang to its object."""

    def owned(self, gang: GangId) -> bool:
        """Return whether the PodGroup of a gang belongs to a job."""

    def restore(self, gang: GangId, stored: Mapping[str, Any]) -> None:
        """Restore the status that an earlier process wrote."""

    def rewrite(self, gang: GangId) -> None:
        """Write the status of a gang again."""

    def forget(self, gang: GangId) -> None:
        """Forget a gang that is gone."""

    def invalid(self, gang: GangId, message: str, *, before: bool) -> None:
        """Report that the object of a gang is malformed."""

    def clear_invalid(self, gang: GangId) -> None:
        """Record that the object of a gang is valid."""

    def hint(self, gang: GangId, message: str, reason: str = REASON) -> None:
        """Report labels or annotations that have no effect."""


class PodMemory(Protocol):
    """The part of a binder that informers use."""

    def mark_unschedulable(self, uid: PodUid) -> None:
        """Record that kube-scheduler marked a pod unschedulable because of our answer."""

    def forget(self, uid: PodUid) -> None:
        """Forget a deleted pod."""


@dataclass(slots=True)
class ClusterConfig:
    """Present configuration of the cluster; all informers share one object."""

    names: frozenset[str]
    """The scheduler names that gangsched serves."""

    priorities: dict[str, int] = field(default_factory=dict)
    """The values of PriorityClasses by their names."""

    default_priority: int | None = None
    """The priority of pods without a class, or None if no class is the default."""

    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    """The labels of namespaces."""


@dataclass(frozen=True, slots=True)
class GangContext:
    """The parts that the informers of gangs and their pods share."""

    facts: FactSink
    engine: GangLookup
    status: StatusSink
    cluster: ClusterConfig
    planned: PlannedPodLimit
    metrics: Metrics
    started: Callable[[], bool]
    """Returns whether this process schedules; before, informers restore stored statuses."""
