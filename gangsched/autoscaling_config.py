"""Settings of the autoscalers that bring nodes for gangs."""

from collections import Counter
from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, field_validator

_CLASS = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NODES_NAMESPACE = "gangsched-placeholders"
"""Namespace of what asks autoscalers for nodes, in which only gangsched creates objects."""

Parameter = Annotated[str, Field(max_length=255)]


def check_names_differ(what: str, names: Iterable[str]) -> None:
    """Check that no two of some entries have one name.

    Raises:
        ValueError: two have one.

    """
    twice = min((name for name, count in Counter(names).items() if count > 1), default="")
    if twice:
        raise ValueError(f"two {what} have the name {twice!r}; each needs a name of its own")


class ProvisioningConfig(BaseModel):
    """How nodes are requested from Cluster Autoscaler for gangs that lack nodes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    class_name: str = Field(
        "best-effort-atomic-scale-up.autoscaling.x-k8s.io", pattern=_CLASS, max_length=253
    )
    """Class of the requests (`provisioningClassName`)."""

    parameters: dict[Parameter, Parameter] = Field(default_factory=dict, max_length=100)
    """Parameters of the class, such as `{ValidUntilSeconds: "600"}`."""

    after_s: float = Field(10.0, ge=0)
    """Seconds that a gang lacks nodes before they are requested. Most gangs that end or are
    preempted for it leave their nodes by then."""

    requests_max: int = Field(32, ge=1, le=1000)
    """Requests that the autoscaler works on at once."""

    namespace_max: int = Field(8, ge=1, le=1000)
    """The same for one namespace, so that no namespace uses all of them."""

    attempts: int = Field(5, ge=1, le=1000)
    """Requests for one gang, one after the other, until it changes or starts."""

    retry_s: float = Field(60.0, gt=0)
    """Seconds between the end of a request and the next; doubles each time, to an hour at most."""


class PlaceholderConfig(BaseModel):
    """How placeholder pods ask any autoscaler for nodes for gangs that lack nodes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    after_s: float = Field(10.0, ge=0)
    """Seconds that a gang lacks nodes before they are asked for."""

    pods_max: int = Field(1000, ge=1, le=10_000)
    """Placeholder pods of all gangs at once. A gang with more pods gets none."""

    gangs_max: int = Field(32, ge=1, le=1000)
    """Gangs with placeholder pods at once."""

    namespace_max: int = Field(8, ge=1, le=1000)
    """The same for one namespace, so that no namespace uses all of them."""

    attempts: int = Field(5, ge=1, le=1000)
    """How often nodes are asked for, for one gang, until it changes or starts."""

    late_s: float = Field(900.0, gt=0, le=86_400)
    """Seconds after which the placeholder pods of a gang that did not start are deleted."""

    retry_s: float = Field(60.0, gt=0)
    """Seconds from then on until the gang asks again; doubles each time, to an hour at most."""


class WarmGuarantee(BaseModel):
    """Nodes that autoscalers keep ready for what a queue has and does not use."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=_LABEL, max_length=50)
    """Name of the CapacityBuffer."""

    queue: str = Field(max_length=253)
    """Queue with the nominal quota that is kept warm."""

    gpu_type: str = Field("", max_length=63)
    """GPU type of that quota, if it is for one."""

    resources: dict[Parameter, Parameter] = Field(min_length=1, max_length=50)
    """What the pods ask for that would use it, one for each node: `{nvidia.com/gpu: "8"}`."""

    node_selector: dict[Parameter, Parameter] = Field(default_factory=dict, max_length=50)
    """Labels of their nodes."""

    tolerate: tuple[Parameter, ...] = Field((), max_length=50)
    """Keys of the taints that they tolerate."""


class KarpenterPool(BaseModel):
    """Equal nodes that Karpenter makes: one instance type of a NodePool."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str = Field(pattern=_LABEL, max_length=63)
    """Name in messages and records."""

    node_pool: str = Field(pattern=_LABEL, max_length=63)
    """NodePool with the template and the limits of the nodes."""

    instance_type: str = Field(pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$", max_length=63)
    """Value of `node.kubernetes.io/instance-type`."""

    resources: dict[Parameter, Parameter] = Field(min_length=1, max_length=50)
    """What pods may use of a node: `{nvidia.com/gpu: "8", cpu: "190", memory: 1900Gi}`."""

    price: float = Field(ge=0, le=1_000_000)
    """Price of a node for an hour."""

    spot: bool = False
    """Whether the provider may take nodes back. Only jobs that can be stopped get such nodes."""

    zone: str | None = Field(None, pattern=_LABEL, max_length=63)
    """Zone of the nodes; by default Karpenter chooses."""

    labels: dict[Parameter, Parameter] = Field(default_factory=dict, max_length=50)
    """Further labels of the nodes, such as `nvidia.com/gpu.product`."""

    nodes_max: int = Field(1000, ge=1, le=1000)
    """Nodes that gangsched has of this pool at most."""

    arrival_s: float = Field(300.0, ge=0, le=86_400)
    """Seconds until a node is there, until the first nodes have shown it."""


class KarpenterConfig(BaseModel):
    """How nodes are bought from Karpenter for gangs that lack nodes."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    pools: tuple[KarpenterPool, ...] = Field(min_length=1, max_length=64)
    """What may be bought."""

    after_s: float = Field(10.0, ge=0)
    """Seconds that a gang lacks nodes before they are bought."""

    purchases_max: int = Field(32, ge=1, le=1000)
    """Purchases with nodes that are still to come, at once."""

    namespace_max: int = Field(8, ge=1, le=1000)
    """The same for one namespace."""

    attempts: int = Field(5, ge=1, le=1000)
    """Purchases for one gang, one after the other, until it changes or starts."""

    retry_s: float = Field(60.0, gt=0)
    """Seconds for which a pool that did not make its nodes is left out; doubles each time, to an
    hour at most."""

    late_s: float = Field(900.0, gt=0, le=86_400)
    """Seconds after which nodes that are not there count as failed."""

    reserved_s: float = Field(600.0, gt=0, le=86_400)
    """Seconds for which nodes that are there wait for the start of their gang."""

    move_after_s: float | None = Field(None, ge=0, le=31_536_000)
    """Seconds that a gang must have run before it may be moved so that nodes can be given back; by
    default none is moved. Only gangs that are movable and ask before they are stopped are."""

    idle_s: float = Field(30.0, ge=0, le=86_400)
    """Seconds after which nodes without gangs are given back."""

    @field_validator("pools")
    @classmethod
    def _names_differ(cls, pools: tuple[KarpenterPool, ...]) -> tuple[KarpenterPool, ...]:
        check_names_differ("pools", (pool.name for pool in pools))
        return pools
