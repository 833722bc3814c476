"""The fields of Kubernetes objects that a scheduler reads, as msgspec structs.

This is the hot path of the watch: the decoder skips a field without a name here, and builds no
object for it. The names are those of the API, in snake case.
"""

from typing import Any

import msgspec


class Struct(msgspec.Struct, rename="camel", omit_defaults=True):
    """A part of an API object; absent fields have the API's defaults."""


class Owner(Struct):
    """The API's OwnerReference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class Metadata(Struct):
    """The API's Metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    owner_references: list[Owner] = []


class TemplateMetadata(Struct):
    """The fields of a pod template's metadata that a scheduler reads."""

    annotations: dict[str, str] | None = None


Amounts = dict[str, str | int | float]


class Resources(Struct):
    """The API's Resources."""

    requests: Amounts = {}
    limits: Amounts = {}


class Port(Struct):
    """The API's Port."""

    container_port: int = 0
    host_port: int = 0
    protocol: str = "TCP"
    host_ip: str = msgspec.field(default="", name="hostIP")


class Container(Struct):
    """The API's Container."""

    name: str = ""
    resources: Resources = msgspec.field(default_factory=Resources)
    ports: list[Port] = []
    restart_policy: str = ""


class Requirement(Struct):
    """The API's Requirement."""

    key: str
    operator: str
    values: list[str] = []


class SelectorTerm(Struct):
    """The API's SelectorTerm."""

    match_expressions: list[Requirement] = []
    match_fields: list[Requirement] = []


class NodeSelector(Struct):
    """The API's NodeSelector."""

    node_selector_terms: list[SelectorTerm] = []


class Preferred(Struct):
    """The API's Preferred."""

    weight: int
    preference: SelectorTerm


class NodeAffinity(Struct):
    """The API's NodeAffinity."""

    required: NodeSelector | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[Preferred] = msgspec.field(
        default=[], name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Struct):
    """The API's Affinity."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: dict[str, Any] | None = None
    pod_anti_affinity: dict[str, Any] | None = None


class TolerationSpec(Struct):
    """The API's Toleration."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""


class Gate(Struct):
    """The API's Gate."""

    name: str


class SchedulingGroup(Struct):
    """The API's PodSchedulingGroup (1.36)."""

    pod_group_name: str = ""


class WorkloadRef(Struct):
    """The API's WorkloadReference (1.35)."""

    name: str
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodSpec(Struct):
    """The part of a PodSpec that decides where a pod may go."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: Amounts = {}
    resources: Resources | None = None
    node_name: str = ""
    scheduler_name: str = ""
    node_selector: dict[str, str] = {}
    affinity: Affinity | None = None
    tolerations: list[TolerationSpec] = []
    priority: int = 0
    priority_class_name: str = ""
    preemption_policy: str = ""
    scheduling_gates: list[Gate] = []
    host_network: bool = False
    volumes: list[dict[str, Any]] = []
    topology_spread_constraints: list[dict[str, Any]] = []
    resource_claims: list[dict[str, Any]] = []
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadRef | None = None


class PodCondition(Struct):
    """The API's PodCondition."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class ContainerStatus(Struct):
    """The API's ContainerStatus: what a container has, and what it is to get."""

    name: str = ""
    resources: Resources | None = None
    allocated_resources: Amounts = {}


class PodStatus(Struct):
    """The API's PodStatus."""

    phase: str = ""
    conditions: list[PodCondition] = []
    start_time: str = ""
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []


class Pod(Struct):
    """A pod as a scheduler reads it."""

    metadata: Metadata
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class BareMetadata(Struct):
    """The part of a pod's metadata that only the API server writes."""

    name: str = ""
    namespace: str = ""
    uid: str = ""


class BareSpec(Struct):
    """The part of a PodSpec that says what the pod uses on which node."""

    containers: list[Container] = []
    init_containers: list[Container] = []
    overhead: Amounts = {}
    resources: Resources | None = None
    node_name: str = ""
    scheduler_name: str = ""


class BareStatus(Struct):
    """The part of a PodStatus that says whether the pod still uses resources."""

    phase: str = ""


class BarePod(Struct):
    """A pod that is not understood: what is needed to count it all the same."""

    metadata: BareMetadata
    spec: BareSpec
    status: BareStatus = msgspec.field(default_factory=BareStatus)


class TaintSpec(Struct):
    """The API's Taint."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(Struct):
    """The API's NodeSpec."""

    taints: list[TaintSpec] = []
    unschedulable: bool = False


class NodeStatus(Struct):
    """The API's NodeStatus."""

    allocatable: Amounts = {}


class NodeObject(Struct):
    """The API's Node."""

    metadata: Metadata
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class GroupObject(Struct):
    """The API's Group."""

    metadata: Metadata
    spec: dict[str, Any] = {}
    status: dict[str, Any] = {}


class PriorityClass(Struct):
    """The API's PriorityClass."""

    metadata: Metadata
    value: int = 0
    global_default: bool = False


class AnyObject(Struct):
    """Any object of the API; the rest of it is not looked at."""

    metadata: Metadata


any_decoder = msgspec.json.Decoder(AnyObject)
pod_decoder = msgspec.json.Decoder(Pod)
bare_pod_decoder = msgspec.json.Decoder(BarePod)
node_decoder = msgspec.json.Decoder(NodeObject)
group_decoder = msgspec.json.Decoder(GroupObject)
priority_class_decoder = msgspec.json.Decoder(PriorityClass)
