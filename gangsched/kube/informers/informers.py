"""All informers of one scheduler, and the API path that each reads.

Groups are read last, because a group with running members must not seem empty.
"""

from collections.abc import Iterable

from gangsched.api import names
from gangsched.core import facts as f
from gangsched.kube.informers.base import Informer
from gangsched.kube.informers.cluster_config import (
    DeclarationInformer,
    Namespaces,
    PriorityClasses,
    Queues,
    reservation_seen,
    topology_seen,
)
from gangsched.kube.informers.context import GangContext, PodMemory
from gangsched.kube.informers.external_owners import Owners
from gangsched.kube.informers.namespace_quotas import NamespaceQuotas
from gangsched.kube.informers.nodes import Nodes
from gangsched.kube.informers.podgroups import PodGroups
from gangsched.kube.informers.pods import Pods
from gangsched.kube.informers.volumes import watched
from gangsched.kube.informers.workloads import PATH as WORKLOADS
from gangsched.kube.informers.workloads import Workloads
from gangsched.kube.status.queue_status import QueueStatusWriter
from gangsched.kube.status.topology_status import TopologyStatusWriter
from gangsched.kube.volumes.eligible_nodes import Volumes

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
PODGROUPS = f"/apis/{names.GROUP}/{names.VERSION}/podgroups"
TOPOLOGIES = f"/apis/{names.GROUP}/{names.VERSION}/topologies"
QUEUES = f"/apis/{names.GROUP}/{names.VERSION}/queues"
RESERVATIONS = f"/apis/{names.GROUP}/{names.VERSION}/reservations"

Watched = dict[str, tuple[str, Informer, bool]]
"""By kind: the API path, the informer, and whether the API server may lack the kind."""


class Informers:
    """The informers of all kinds."""

    def __init__(
        self,
        context: GangContext,
        volumes: Volumes,
        queue_status: QueueStatusWriter,
        topology_status: TopologyStatusWriter,
        orders: Iterable[str],
        binder: PodMemory,
    ) -> None:
        facts, metrics, cluster = context.facts, context.metrics, context.cluster
        self._volumes, self._metrics, self._of_volumes = volumes, metrics, Watched()
        started, self.planned = context.started, context.planned
        self.queues = Queues(
            facts,
            metrics,
            queue_status.queues,
            started,
            cluster=cluster,
            engine=context.engine,
            orders=orders,
        )
        self.reservations = DeclarationInformer(
            "Reservation",
            reservation_seen,
            f.AdvanceReservationGone,
            facts,
            metrics,
            queue_status.reservations,
            started,
        )
        self.topologies = DeclarationInformer(
            "Topology",
            topology_seen,
            f.TopologyGone,
            facts,
            metrics,
            topology_status.topologies,
            started,
        )
        self.priority_classes = PriorityClasses(cluster, metrics, self._classes_changed)
        self.namespaces = Namespaces(cluster, metrics, self.queues.namespaces_changed)
        self.namespace_quotas = NamespaceQuotas(facts, metrics)
        self.nodes = Nodes(facts, metrics)
        self.owners = Owners(context)
        self.workloads = Workloads(facts, context.status, metrics)
        self.pods = Pods(context, volumes, self.owners, self.workloads, binder)
        self.pod_groups = PodGroups(context, volumes)

    def watch_volumes(self) -> None:
        """Watch volumes too; a read-only command may lack the permission for them."""
        self._of_volumes = watched(self._volumes, self._metrics)

    def first(self) -> Watched:
        """Return the kinds that are read before groups."""
        return {
            "PriorityClass": (CLASSES, self.priority_classes, False),
            "Namespace": ("/api/v1/namespaces", self.namespaces, False),
            "ResourceQuota": ("/api/v1/resourcequotas", self.namespace_quotas, True),
            "Topology": (TOPOLOGIES, self.topologies, True),
            "Queue": (QUEUES, self.queues, True),
            "Reservation": (RESERVATIONS, self.reservations, True),
            "Node": ("/api/v1/nodes", self.nodes, False),
            **self._of_volumes,
            **{
                receiver.kind: (receiver.path, receiver, True) for receiver in self.owners.receivers
            },
            "Pod": ("/api/v1/pods", self.pods, False),
        }

    def groups(self) -> Watched:
        """Return the kinds that declare a gang."""
        return {
            "PodGroup": (PODGROUPS, self.pod_groups, True),
            "Workload": (WORKLOADS, self.workloads, True),
            **{receiver.kind: (receiver.path, receiver, True) for receiver in self.owners.groups},
        }

    def _classes_changed(self) -> None:
        for kinds in (self.first(), self.groups()):
            for _, informer, _ in kinds.values():
                informer.classes_changed()
