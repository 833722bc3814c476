"""What informers may use: they report facts, look gangs up, and give news to the status writer."""

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
    """Takes what is seen of the cluster."""

    def observe(self, fact: f.Fact) -> None:
        """Give one fact to the engine and carry out what follows."""

    def declare(self, gang: Gang) -> None:
        """Give the engine what was declared of a gang."""

    def report(self, report: o.Report) -> None:
        """Report to the user of a gang what the engine does not report."""


class GangLookup(Protocol):
    """What is read of the engine."""

    @property
    def gangs(self) -> Mapping[GangId, GangState]:
        """All gangs."""

    @property
    def queues(self) -> Mapping[str, Queue]:
        """All queues."""

    def pod(self, uid: PodUid) -> f.PodSeen | None:
        """Return what was last seen of a pod."""

    def reconciled(self, fact: f.PodSeen) -> f.PodSeen:
        """Return what is seen of a pod, with the gang that it is a member of already."""


class StraysSink(Protocol):
    """Takes note of pods of our gangs that another scheduler is to place."""

    def meet(self, pod: Pod, fact: f.PodSeen, served: Collection[str]) -> bool:
        """Return whether a pod is such a pod."""

    def forget(self, uid: str) -> None:
        """Take note that a pod was deleted."""


class StatusSink(Protocol):
    """Takes what is to be written in the status of an object that stands for a gang."""

    @property
    def strays(self) -> StraysSink:
        """Pods of gangs that another scheduler is to place."""

    def subject(self, gang: GangId, subject: ObjectRef) -> None:
        """Learn which object stands for a gang."""

    def owned(self, gang: GangId) -> bool:
        """Return whether an object made the one that stands for a gang."""

    def restore(self, gang: GangId, stored: Mapping[str, Any]) -> None:
        """Go on from what the process before this one wrote."""

    def rewrite(self, gang: GangId) -> None:
        """Have the status of a gang written again."""

    def forget(self, gang: GangId) -> None:
        """Forget a gang that is gone."""

    def invalid(self, gang: GangId, message: str, *, before: bool) -> None:
        """Report that the object of a gang is not understood."""

    def clear_invalid(self, gang: GangId) -> None:
        """Take note that the object of a gang is understood."""

    def hint(self, gang: GangId, message: str, reason: str = REASON) -> None:
        """Report what the object of a gang probably does not mean."""


class PodMemory(Protocol):
    """What a way of binding remembers of pods."""

    def mark_unschedulable(self, uid: PodUid) -> None:
        """Remember that kube-scheduler put a pod aside, by our word."""

    def forget(self, uid: PodUid) -> None:
        """Drop what is remembered of a pod that is gone."""


@dataclass(slots=True)
class ClusterConfig:
    """What administrators declare and every informer reads, as it is now: all share one object."""

    names: frozenset[str]
    """The scheduler names of pods that are ours."""

    priorities: dict[str, int] = field(default_factory=dict)
    """The values of PriorityClasses by their names."""

    default_priority: int | None = None
    """The priority of pods that name no class, where there is a class for them."""

    namespaces: dict[str, dict[str, str]] = field(default_factory=dict)
    """The labels of namespaces."""


@dataclass(frozen=True, slots=True)
class GangContext:
    """What the informers of gangs and their pods have in common."""

    facts: FactSink
    engine: GangLookup
    status: StatusSink
    cluster: ClusterConfig
    planned: PlannedPodLimit
    metrics: Metrics
    started: Callable[[], bool]
    """Whether this process schedules: until then it takes over what was written before."""
