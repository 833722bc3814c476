"""Workloads of Kubernetes 1.35 (scheduling.k8s.io/v1alpha1): each of their pod groups is a gang.

    pod.spec.workloadRef: name, podGroup, podGroupReplicaKey  ->  Workload.spec.podGroups[podGroup]

A pod group with replica keys is a gang for each key, and only the pods name these keys.
Kubernetes 1.36 has PodGroups instead (KEP-4671), which `external_groups.py` reads.
"""

from typing import Any

from gangsched.api.dialects import queue_of
from gangsched.core import facts as f
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import DEFAULT_QUEUE
from gangsched.kube.decoding.membership import gang_of
from gangsched.kube.decoding.metadata import ApiObject
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.decoding.schemas import GroupObject, Pod
from gangsched.kube.decoding.users import user_of
from gangsched.kube.informers.base import NameTracking
from gangsched.kube.informers.context import FactSink, StatusSink
from gangsched.kube.status.events import ObjectRef
from gangsched.metrics import Metrics

API_VERSION = "scheduling.k8s.io/v1alpha1"
PATH = f"/apis/{API_VERSION}/workloads"

_Group = tuple[str, str, str]
"""Namespace, Workload, pod group."""


def minimums(group: GroupObject) -> dict[str, int]:
    """Return how many pods of each pod group of a Workload start together.

    Raises:
        DecodeError: the Workload is malformed.

    """
    subject = f"Workload {group.metadata.namespace}/{group.metadata.name}"
    counts: dict[str, int] = {}
    try:
        for pod_group in group.spec["podGroups"]:
            policy: dict[str, Any] = pod_group["policy"]
            gang = policy.get("gang")
            counts[pod_group["name"]] = max(int(gang["minCount"]), 1) if gang else 1
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise DecodeError(f"{subject}: spec.podGroups: {error!r}") from error
    return counts


class Workloads(NameTracking):
    """The informer of Workloads, which declare the gangs that pods name."""

    kind = "Workload"

    def __init__(self, facts: FactSink, status: StatusSink, metrics: Metrics) -> None:
        super().__init__(metrics)
        self._facts, self._status = facts, status
        self._known: dict[tuple[str, str], GroupObject] = {}
        self._gangs: dict[GangId, _Group] = {}

    def pod(self, pod: Pod) -> None:
        """Declare the gang that a pod names."""
        named = pod.spec.workload_ref
        if named is None:
            return
        gang_id = gang_of(pod)
        self._gangs[gang_id] = (pod.metadata.namespace, named.name, named.pod_group)
        self._declare(gang_id)

    def decode_and_apply(self, obj: ApiObject) -> None:
        """Observe the facts of an object."""
        group = obj.group
        minimums(group)
        metadata = group.metadata
        key = metadata.namespace, metadata.name
        self._known[key] = group
        self.track(obj, "/".join(key))
        for gang_id, of in self._gangs.items():
            if of[:2] == key:
                self._declare(gang_id)

    def on_name_released(self, name: str) -> None:
        """Forget a Workload; gangs with running pods keep its declaration."""
        namespace, _, own = name.partition("/")
        self._known.pop((namespace, own), None)

    def forget(self, gang_id: GangId) -> None:
        """Forget a gang without pods."""
        if self._gangs.pop(gang_id, None) is not None:
            self._facts.observe(f.GangGone(gang_id))

    def _declare(self, gang_id: GangId) -> None:
        namespace, name, pod_group = self._gangs[gang_id]
        group = self._known.get((namespace, name))
        minimum = minimums(group).get(pod_group) if group is not None else None
        if group is None or minimum is None:
            return  # the pods wait, and their status names the missing Workload
        metadata = group.metadata
        subject = ObjectRef(API_VERSION, self.kind, namespace, name, metadata.uid)
        self._status.subject(gang_id, subject)
        queue = queue_of(metadata.labels, metadata.annotations) or DEFAULT_QUEUE
        user = user_of(metadata.annotations, namespace)
        self._facts.declare(Gang(gang_id, minimum, queue=queue, user=user))
