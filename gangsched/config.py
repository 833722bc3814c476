"""Settings, read once and frozen; each field says its unit and the reason for its default."""

from collections.abc import Iterator
from difflib import get_close_matches
from importlib.metadata import entry_points
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from gangsched.core.bounds import EVALUATION_MIB, EVALUATION_S
from gangsched.core.model.text import shown

_ERRORS_SHOWN = 8
_LETTERS_OF_FIELD = 100
"""A field may be a key that a user chose."""

POLICY_GROUPS = {
    "order": "gangsched.orders",
    "placer": "gangsched.placers",
    "sharing": "gangsched.sharings",
    "backfill": "gangsched.backfills",
    "preemptor": "gangsched.preemptors",
}
"""Entry points by the field that names one of them."""


class ConfigError(Exception):
    """A configuration file is wrong; the message names the file, the field and what is allowed."""


class PolicyConfig(BaseModel):
    """Policies by name, and their options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    order: str = "fifo"
    """Entry point in `gangsched.orders`: who is next."""

    placer: str = "cpsat"
    """Entry point in `gangsched.placers`: where a gang goes. The default counts first, and solves
    only what counting cannot prove."""

    sharing: str = "drf"
    """Entry point in `gangsched.sharings`: which queue is next, at each level of their tree."""

    backfill: str = "easy"
    """Entry point in `gangsched.backfills`: who gets room kept in time when it does not fit."""

    preemptor: str = "cheapest"
    """Entry point in `gangsched.preemptors`: who is stopped where a queue lets another go first."""

    sharing_options: dict[str, Any] = {}
    backfill_options: dict[str, Any] = {}
    preemptor_options: dict[str, Any] = {}
    order_options: dict[str, Any] = {}
    placer_options: dict[str, Any] = {}
    """Fields of the policy's class: `{objectives: [domains, leftover], budget: 0.5}` for cpsat."""


class SchedulerConfig(PolicyConfig):
    """What `gangsched run` does, from a YAML file or from its flags."""

    scheduler_name: str = Field("gangsched", min_length=1)
    """Pods with this `spec.schedulerName` are ours."""

    scheduler_aliases: tuple[str, ...] = ()
    """Further names that are ours: those of peers whose jobs we take over, such as `volcano`."""

    barrier_s: float = Field(60.0, gt=0)
    """Seconds from reservation to the barrier where the gang sets none; a job controller creates
    a thousand pods in a few seconds, so a minute means that something is wrong."""

    backoff_s: float = Field(1.0, gt=0)
    """Seconds before a broken gang is planned again; doubles with each break."""

    backoff_max_s: float = Field(60.0, gt=0)
    """Upper bound of that back-off: what the world needs to mend is rarely longer."""

    avoid_s: float = Field(60.0, gt=0)
    """Seconds a gang stays away from a node that refused one of its members; where no other has
    room, it is tried again after the back-off."""

    repartition_s: float = Field(600.0, gt=0)
    """Seconds a gang waits for GPUs to be cut anew (a mig-manager may restart the node's clients)
    or for moved gangs to leave, before it is planned again."""

    mig_config_map: str = Field("gpu-operator/gangsched-mig-config", pattern=r"^[^/]+/[^/]+$")
    """Namespace and name of the ConfigMap that NVIDIA's mig-manager reads its layouts from."""

    advice_s: float = Field(30.0, gt=0)
    """Seconds until advice to a refused gang is found anew: the world has moved."""

    advice_interval_s: float = Field(0.5, gt=0)
    """Pause between rounds of advice, which share the machine with planning."""

    defragment: Literal["off", "advise", "apply"] = "advise"
    """Whether moving other gangs is considered for a refused one: never, as advice, or done."""

    defragment_gpu_s: float = Field(36_000.0, ge=0)
    """GPU-seconds of work that one defragmentation may lose; ten GPU-hours."""

    defragment_gangs: int = Field(4, ge=1, le=64)
    """Gangs that one defragmentation may move."""

    gpu_rates: dict[str, Annotated[float, Field(gt=0)]] = {}
    """What a GPU of a kind is worth for shares and budgets: `{H100: 2, A100: 1}`. A kind is a part
    of the product's name; GPUs of no kind are worth 1."""

    half_life_s: float = Field(604_800.0, gt=0)
    """Half-life of the past GPU time that fair shares look at; a week, as in Slurm."""

    history_config_map: str = Field("gangsched-system/gangsched-history", pattern=r"^[^/]+/[^/]+$")
    """ConfigMap (namespace/name) that keeps learnt run times across restarts."""

    past_config_map: str = Field("gangsched-system/gangsched-past", pattern=r"^[^/]+/[^/]+$")
    """ConfigMap (namespace/name) that keeps across restarts what gangs have been through: promises,
    back-off, excluded nodes."""

    history_interval_s: float = Field(60.0, gt=0)
    """Pause between writes of learnt run times."""

    replan_s: float = Field(10.0, gt=0)
    """Seconds until refused gangs are planned again although nothing came free."""

    ready_tries: int = Field(5, ge=1)
    """Times a gang may fail to become ready before it is given up."""

    forecast_interval_s: float = Field(10.0, gt=0)
    """Pause between forecasts of start times."""

    forecast_runs: int = Field(7, ge=1, le=101)
    """Runs of a forecast: their median is told, and their range, as wide as earlier starts ask."""

    forecast_cycles: int = Field(100, ge=1)
    """Planning cycles in each run; bounds how far a forecast looks and what it costs."""

    job_kinds: tuple[str, ...] | None = None
    """Kinds whose jobs we run whatever other operators do, such as `[PyTorchJob, JobSet]`; `[]` is
    none. Default: at any time all those that no other operator runs then."""

    job_env: dict[str, str] = Field(default_factory=dict)
    """Variables for every container of our jobs' pods, such as `{MLFLOW_TRACKING_URI: ...}`; what a
    container sets itself counts."""

    schedule_trials: bool = True
    """Whether the pods of Experiments' Jobs are ours where their template names no scheduler."""

    evaluation_s: float = Field(EVALUATION_S.most, ge=1)
    """Seconds that the search for an Experiment's next points may take, or reading a trial's log,
    or matching a JobSet's patterns: each in one of two processes, by namespaces in turn."""

    evaluation_mib: int = Field(EVALUATION_MIB.most, ge=128)
    """MiB of memory of each of these processes, which the container must have besides its own."""

    courtesy_share: float = Field(0.2, gt=0, le=1)
    """Share of a core that advice, and forecasts, may each take: they run beside planning and
    binding, in the same interpreter."""

    audit_interval_s: float = Field(30.0, gt=0)
    """Pause between comparisons of what queues are charged with what runs."""

    binds_in_flight: int = Field(64, ge=1, le=1024)
    """Bindings posted at once. On two cores 64 gave more than 32, and 128 no more than 64."""

    plan_interval_s: float = Field(0.02, ge=0)
    """Pause between planning cycles, so that gangs arriving together are planned together."""

    plan_deadline_s: float = Field(20.0, gt=0)
    """Seconds that planning one gang may take; it usually takes milliseconds. A gang that takes
    longer is set aside, and the others go on. Where planning it does not even stop within as many
    seconds more, this process ends, and the next leader sets the gang aside."""

    advice_deadline_s: float = Field(60.0, gt=0)
    """Seconds that advice for one refused gang may take, some tens of plans."""

    forecast_deadline_s: float = Field(300.0, gt=0)
    """Seconds that one forecast of start times may take, hundreds of plans."""

    starts_waiting: int = Field(2_000, ge=1)
    """Bindings that may wait their turn before planning pauses: who comes next is chosen late."""

    planned_pods_max: int = Field(500_000, ge=1)
    """Pods of PodGroups with templates that one namespace may have: each is kept in memory, some
    hundred bytes, before it exists. Further groups wait, and say so."""

    name_others: bool = False
    """Whether what users read names gangs of other namespaces, and queues that theirs may not use:
    in the status and Events of gangs, on pods that are stopped, and in the status of Queues. By
    default they are counted. The log, the audit trail and `gangsched explain` always name them."""

    settle_s: float = Field(0.5, ge=0)
    """Pause between the first listing and the first plan: binds that an earlier process had in
    flight have reached the watch by then."""

    journal: Path | None = None
    """File to which every fact and decision is added, for `gangsched replay`; default: none. It
    grows by some kilobytes for each pod, and by a line for each of five ticks a second."""

    audit: Path | None = None
    """File of the audit trail: who was stopped for whom and why, pods deleted, queues changed, a
    line of JSON each; `/dev/stdout` where something collects that. Default: none."""

    leader_elect: bool = False
    """Whether several processes share one cluster: one leads, the others stand by."""

    lease: str = Field("gangsched-system/gangsched", pattern=r"^[^/]+/[^/]+$")
    """Lease (namespace/name) that the leader holds."""

    lease_s: float = Field(8.0, ge=2, le=300)
    """Seconds a Lease is good for. Its holder stops acting after five eighths of them without a
    renewal; another begins, where it died, after all of them."""

    extender_host: str = "127.0.0.1"
    """Address the extender and /metrics listen on."""

    tls_secret: str | None = Field(None, pattern=r"^[^/]+/[^/]+$")
    """Secret (namespace/name) with the certificates of our ports, made where it is not there. With
    it, the extender lets only those in who have a certificate of its authority."""

    tls_host: str = "gangsched-leader.gangsched-system.svc"
    """Name in our certificate: that of the Service by which kube-scheduler finds the leader."""

    metrics_access: Literal["open", "reviewed"] = "open"
    """Who may read /metrics: everybody, or whose token the API server lets `get` it."""

    extender_port: int = Field(0, ge=0, le=65535)
    """Port of the extender; 0 takes a free one."""

    metrics_port: int = Field(0, ge=0, le=65535)
    """Port of /metrics; 0 takes a free one, printed at start."""


def load_config(path: Path | None, **overrides: object) -> SchedulerConfig:
    """Read the configuration, with flags over the file.

    Raises:
        ConfigError: the file is missing, is no YAML mapping, or a field is wrong.

    """
    values: object = {}
    if path is not None:
        try:
            values = yaml.safe_load(path.read_text()) or {}
        except (OSError, yaml.YAMLError) as error:
            raise ConfigError(f"{path}: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: must be a mapping of fields, not {type(values).__name__}")
    stranger = next(strangers(SchedulerConfig, values), None)
    if stranger is not None:
        raise ConfigError(f"{path}: {stranger}")
    values |= {key: value for key, value in overrides.items() if value is not None}
    try:
        return SchedulerConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(one_sentence(error, str(path or "flags"))) from error


def one_sentence(error: ValidationError, subject: str) -> str:
    """Write a pydantic error as: object, field, value, what is allowed."""
    parts = []
    for item in error.errors()[:_ERRORS_SHOWN]:
        field = ".".join(str(part)[:_LETTERS_OF_FIELD] for part in item["loc"]) or "(whole)"
        wrong, value = item["type"], item["input"]
        told = wrong in ("missing", "extra_forbidden") or isinstance(value, dict)
        told = told or (wrong == "value_error" and isinstance(value, list))
        got = "" if told else f" (got {shown(value)})"
        said = item["msg"].removeprefix("Value error, ")
        parts.append(f"{field}: {said[:1].lower()}{said[1:]}{got}")
    more = error.error_count() - len(parts)
    return f"{subject}: " + "; ".join(parts) + (f"; and {more} more" if more else "")


# -- fields that there are not -------------------------------------------------------------------


def strangers(annotation: Any, value: object, where: str = "") -> Iterator[str]:
    """Yield a sentence for each field that no model has, with the nearest one that there is."""
    if isinstance(value, list):
        for at, one in enumerate(value):
            for item in _parts(annotation, (tuple, list)):
                yield from strangers(item, one, f"{where}[{at}]")
        return
    model = next(_parts(annotation, ()), None)
    if not isinstance(value, dict) or model is None:
        return
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    fields = {name: field for name, field in fields.items() if not field.exclude}
    for name, one in value.items():
        path = f"{where}.{name}".lstrip(".")
        if name in fields:
            yield from strangers(fields[name].annotation, one, path)
            continue
        near = get_close_matches(str(name)[:_LETTERS_OF_FIELD], fields, n=1)
        hint = f"there are: {', '.join(fields)}"
        if near:
            allowed = ", ".join(_allowed(model, near[0]))
            hint = f"did you mean {near[0]!r}?{allowed and f' It takes {allowed}'}"
        yield f"{path[:_LETTERS_OF_FIELD]}: there is no such field; {hint}"


def _allowed(model: type[BaseModel], name: str) -> Iterator[str]:
    """Yield the values of a field that takes one of a few."""
    if issubclass(model, PolicyConfig) and name in POLICY_GROUPS:
        yield from sorted(point.name for point in entry_points(group=POLICY_GROUPS[name]))
    elif (field := model.model_fields.get(name)) and get_origin(field.annotation) is Literal:
        yield from map(str, get_args(field.annotation))


def _parts(annotation: Any, of: tuple[type, ...]) -> Iterator[type[BaseModel]]:
    """Yield the models an annotation names: by themselves, or as the items `of` sequences."""
    origin = get_origin(annotation)
    if origin in (Union, UnionType):
        for one in get_args(annotation):
            yield from _parts(one, of)
    elif origin in of:
        for one in get_args(annotation):
            yield from _parts(one, ())
    elif not of and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
