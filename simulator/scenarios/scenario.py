"""A scenario: cluster, queues, policies, workload and faults, in one YAML file."""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from gangsched.api.queue import QueueSpec
from gangsched.api.topology import TopologySpec
from gangsched.config import ConfigError, PolicyConfig, one_sentence, strangers
from gangsched.core.model.node_pools import NODES_OF_POOL_MAX, POOLS_MAX
from gangsched.local.nodes import NodeGroup, check_distinct_names
from simulator.traces import FORMATS

COUNTING = "pack"
"""The default placer of scenarios; the default of a cluster is in `PolicyConfig`."""

_UNITS_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_TIME = re.compile(rf"(\d+(?:\.\d+)?)\s*({'|'.join(_UNITS_S)})")


def parse_duration(value: object) -> object:
    """Return the seconds of "90s", "1h 30m" or "2d"; return other types unchanged."""
    if not isinstance(value, str):
        return value
    parts = _TIME.findall(value)
    if not parts or _TIME.sub("", value).strip():
        raise ValueError("must be seconds, or a time such as 90s, 1h 30m or 2d")
    return sum(float(number) * _UNITS_S[unit] for number, unit in parts)


Seconds = Annotated[float, BeforeValidator(parse_duration), Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, BeforeValidator(parse_duration), Field(gt=0, allow_inf_nan=False)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class QueueEntry(QueueSpec):
    """A queue: its name, and the fields of a Queue's spec."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")


class QueuesOfWorkload(_Part):
    """A queue for each name in the jobs, below one queue with the whole cluster."""

    guarantee: Literal["average", "equal"] = "average"
    """The nominal quota of each queue: what its jobs use on average, or equal for all queues."""

    reclaim: Literal["Never", "LowerPriority", "Any"] = "Any"
    within_queue: Literal["Never", "LowerPriority"] = "LowerPriority"
    strict: bool = False


class ClusterSpec(_Part):
    """The nodes, and the topology that their labels describe."""

    nodes: tuple[NodeGroup, ...] = ()
    snapshot: Path | None = None
    """A file of `gangsched snapshot`: its nodes, queues, and running and pending gangs. `nodes`
    are added to it."""

    topology: TopologySpec | None = None
    load: float | None = Field(None, gt=0, le=100)
    """Size the only group of nodes so that the jobs request this multiple of its GPUs."""

    @model_validator(mode="after")
    def _one_group(self) -> "ClusterSpec":
        check_distinct_names(self.nodes)
        if self.load is not None and (len(self.nodes) != 1 or not self.nodes[0].gpus):
            raise ValueError("load needs exactly one group of nodes, and its nodes need GPUs")
        return self


class PolicyChoice(PolicyConfig):
    """Policies by name, as in the scheduler's own configuration."""

    placer: str = COUNTING
    """Counting only: proofs of optimality take too long for a month of jobs."""


class TraceSource(_Part):
    """Jobs of a trace."""

    format: str
    path: Path
    first: int = Field(0, ge=0)
    """How many jobs at the beginning of the trace to skip."""

    jobs: int | None = Field(None, ge=1)
    """How many to take; default: all."""

    queue: str = ""
    """One queue for all jobs; default: the queues of the trace."""

    faster: float = Field(1.0, gt=0)
    """Factor by which the arrivals are compressed; run times stay."""

    bad_rows: Literal["reject", "skip"] = "reject"

    @model_validator(mode="after")
    def _known(self) -> "TraceSource":
        if self.format not in FORMATS:
            near = get_close_matches(self.format, FORMATS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"no format {self.format!r}; there are: {', '.join(FORMATS)}{hint}")
        return self


class Generator(_Part):
    """Jobs at random, from the seed of the run."""

    name: str = Field("job", pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    jobs: int = Field(ge=1, le=10_000_000)
    every: Positive
    """Mean time between arrivals, which are a Poisson process."""

    by_day: float = Field(0.0, ge=0, le=1)
    """How much the rate follows the hour: 0 not at all; 1 from zero at 3 h to double at 15 h."""

    runtime: Positive = 3600.0
    """Median run time; run times are log-normal."""

    spread: float = Field(1.5, ge=0, le=5)
    """Standard deviation of the logarithm of run times; real traces have 1.5 to 2.5."""

    longest: Positive = 30 * 86_400.0
    pods: dict[int, Annotated[float, Field(gt=0)]] = {1: 1.0}
    """Numbers of pods, with their relative frequencies."""

    gpus: dict[int, Annotated[float, Field(gt=0)]] = {1: 1.0}
    """GPUs of a pod, with their relative frequencies."""

    queues: dict[str, Annotated[float, Field(gt=0)]] = {"default": 1.0}
    priority: int = 0
    users: int = Field(1, ge=1)


class WorkloadSpec(_Part):
    """The jobs, when they arrive, and what users declare about them."""

    traces: tuple[TraceSource, ...] = ()
    generators: tuple[Generator, ...] = ()
    begin: Seconds = 0.0
    """Jobs that arrive earlier are left out; virtual time starts here."""

    end: Positive | None = None
    """Jobs that arrive later are left out."""

    estimates: Literal["exact", "rough", "none"] = "rough"
    """What users declare as run times: the exact value, one to five times as much (Mu'alem and
    Feitelson, TPDS 2001), or nothing. A declaration in the trace takes precedence."""

    checkpoint: Positive | None = None
    """Interval of checkpoints; default: that of the trace, else no checkpoints."""

    grace: Seconds = 30.0
    """How long the pods of a preempted job take to terminate."""

    checkpoint_grace: Positive | None = None
    """How much time jobs ask for to save their work before they are stopped; they take half of it.
    Only such jobs get spot nodes. Default: they do not ask."""


class FaultSpec(_Part):
    """Failures at exponential intervals, from the seed of the run."""

    node_mtbf: Positive | None = None
    """Mean time between failures of one node; default: none fails."""

    node_repair: Positive = 3600.0
    rack_mtbf: Positive | None = None
    """Mean time between failures of one rack; all its nodes fail and return together."""

    rack_repair: Positive = 3600.0
    api_latency: Seconds = 0.0
    """Median time of a call to the API server; log-normal. 0 binds whole gangs at once."""

    api_errors: float = Field(0.0, ge=0, lt=1)
    """Share of failing calls: creating, preparing and binding a pod."""

    restart_mtbf: Positive | None = None
    """Mean time between restarts of the scheduler, which then reads the API server again."""

    def any_api(self) -> bool:
        """Return whether pods are created and bound by API calls."""
        return bool(self.api_latency or self.api_errors or self.restart_mtbf)


class Delays(_Part):
    """How long steps take that are instant by default."""

    start: Seconds = 0.0
    """Median time from binding to running: images, mounts. Log-normal."""

    start_spread: float = Field(0.5, ge=0, le=3)
    plan: Seconds = 0.0
    """Time between planning cycles; 0 plans at each event."""

    replan: Positive = 300.0
    """Time until refused jobs are planned again although no capacity was freed. The scheduler's
    default, 10 s, makes a simulation of months slow and changes little."""

    writes_per_s: float | None = Field(None, gt=0)
    """Rate limit of writes to the API server; default: no limit."""

    burst: int = Field(100, ge=1)


class PoolSpec(_Part):
    """Equal nodes that are bought for gangs that lack nodes, and given back."""

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
    nodes: int = Field(ge=0, le=NODES_OF_POOL_MAX)
    """The most nodes that it has at a time."""

    gpus: int = Field(0, ge=0, le=64)
    gpu_model: str = ""
    cpu: str = "96"
    memory: str = "1Ti"
    labels: dict[str, str] = {}
    price: float = Field(0.0, ge=0, le=1_000_000)
    """What a node costs for an hour, in $."""

    spot: bool = False
    """The provider may take nodes back: only gangs that can be stopped get them."""

    boot: Seconds = 300.0
    """Median time from the purchase of a node until it is there; log-normal."""

    boot_spread: float = Field(0.2, ge=0, le=3)
    shortage_mtbf: Positive | None = None
    """Mean time until the pool makes no more nodes for a while; default: never."""

    shortage_repair: Positive = 3600.0
    reclaim_mtbf: Positive | None = None
    """Mean time until the provider takes a spot node back; default: never."""

    def group(self) -> NodeGroup:
        """Return all nodes that it can make, as a group."""
        fields = self.model_dump(include={"name", "gpus", "gpu_model", "cpu", "memory", "labels"})
        return NodeGroup.model_validate({**fields, "count": max(self.nodes, 1)})


class BuyingSpec(_Part):
    """How nodes are bought; the defaults are those of the setting `karpenter`."""

    after: Seconds = 10.0
    """How long a gang lacks nodes before they are bought."""

    late: Positive = 900.0
    """After which time nodes that are not there count as failed."""

    retry: Positive = 60.0
    """For how long a pool that failed is left out; doubles each time, to an hour at most."""

    reserved: Positive = 600.0
    """For how long nodes that are there wait for the start of their gang."""

    idle: Seconds = 30.0
    """After which time nodes without gangs are given back."""

    attempts: int = Field(5, ge=1, le=1000)
    purchases_max: int = Field(32, ge=1, le=1000)
    wait_price: float = Field(0.0, ge=0, le=1e9)
    """What an hour that a job waits is worth, in $, for the objective `cost_and_wait`."""


class Scenario(_Part):
    """Everything a run needs except its seed."""

    version: Literal["gangsched.io/simulation/v1"]
    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
    cluster: ClusterSpec = ClusterSpec()
    queues: tuple[QueueEntry, ...] | QueuesOfWorkload = ()
    policies: PolicyChoice = PolicyChoice()
    pools: tuple[PoolSpec, ...] = Field((), max_length=POOLS_MAX)
    buying: BuyingSpec = BuyingSpec()
    workload: WorkloadSpec = WorkloadSpec()
    faults: FaultSpec = FaultSpec()
    delays: Delays = Delays()
    horizon: Positive | None = None
    """When the run ends; default: at the end of the last job."""

    seeds: tuple[int, ...] = Field((0,), min_length=1, max_length=10_000)
    folder: Path = Field(Path(), exclude=True)
    """The folder of relative paths."""

    @model_validator(mode="after")
    def _something(self) -> "Scenario":
        workload = self.workload
        if not (workload.traces or workload.generators or self.cluster.snapshot):
            raise ValueError("workload: there are no jobs: give traces, generators, or a snapshot")
        if not (self.cluster.nodes or self.cluster.snapshot or self.pools):
            raise ValueError("cluster: there are no nodes: give groups of nodes, a snapshot, or "
                             "pools")  # fmt: skip
        names = [*(pool.name for pool in self.pools), *(g.name for g in self.cluster.nodes)]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"pools: the name {twice[0]!r} is there twice; names of pools and of "
                             f"groups of nodes differ")  # fmt: skip
        return self


def load(path: Path, changes: tuple[str, ...] = ()) -> Scenario:
    """Read a scenario, with changes such as `policies.order=shortest`.

    Raises:
        ConfigError: the file is missing or not a mapping, or a field or change is wrong.

    """
    try:
        values = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must be a mapping of fields, not {type(values).__name__}")
    for change in changes:
        _change(values, change)
    return parse(values, str(path), path.parent)


def parse(values: Mapping[str, Any], subject: str, folder: Path) -> Scenario:
    """Read a scenario from its fields.

    Raises:
        ConfigError: a field is wrong or unknown.

    """
    unknown = next(strangers(Scenario, values), None)
    if unknown is not None:
        raise ConfigError(f"{subject}: {unknown}")
    try:
        return Scenario.model_validate({**values, "folder": folder})
    except ValidationError as error:
        raise ConfigError(one_sentence(error, subject)) from error


def _change(values: dict[str, Any], change: str) -> None:
    """Set the field at a path; items of lists are named by index or by their `name`."""
    name, equals, text = change.partition("=")
    if not equals or not name:
        raise ConfigError(f"--set: {change!r} must be FIELD=VALUE, such as policies.order=shortest")
    *path, last = name.split(".")
    place: Any = values
    try:
        for part in path:
            place = (
                place[_at(place, part)] if isinstance(place, list) else place.setdefault(part, {})
            )
        place[_at(place, last) if isinstance(place, list) else last] = yaml.safe_load(text)
    except (ValueError, IndexError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise ConfigError(f"--set: {change!r}: there is no such field to set ({error})") from error


def _at(place: list[Any], part: str) -> int:
    """Return the index of the item that a part of a path names."""
    if part.isdecimal():
        return int(part)
    names = [str(item.get("name")) if isinstance(item, dict) else "" for item in place]
    if part not in names:
        raise ValueError(f"{part!r} is no number, and none of: {', '.join(filter(None, names))}")
    return names.index(part)
