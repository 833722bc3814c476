"""Settings, read once and frozen; each field says its unit and the reason for its default."""

import logging
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin
from urllib.parse import urlsplit

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from gangsched.autoscaling_config import (
    KarpenterConfig,
    PlaceholderConfig,
    ProvisioningConfig,
    WarmGuarantee,
    check_names_differ,
)
from gangsched.core.bounds import EVALUATION_MIB, EVALUATION_S
from gangsched.core.model.text import shown
from gangsched.installed import entry_points

log = logging.getLogger(__name__)

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

FORMER_NAMES: Mapping[str, str] = {
    "advice_s": "advice_ttl_s",
    "avoid_s": "node_exclusion_s",
    "barrier_s": "schedule_timeout_s",
    "courtesy_share": "background_cpu_share",
    "gpu_rates": "gpu_weights",
    "name_others": "name_other_namespaces",
    "past_config_map": "gang_history_config_map",
    "replan_s": "retry_interval_s",
    "settle_s": "startup_delay_s",
    "starts_waiting": "queued_binds_max",
}
"""Settings by the name that they had in earlier releases. Files with that name are still read."""


class ConfigError(Exception):
    """A configuration file is wrong; the message names the file, the field and what is allowed."""


class PolicyConfig(BaseModel):
    """Policies by name, and their options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    order: str = "fifo"
    """Entry point in `gangsched.orders`: the order of gangs in a queue."""

    placer: str = "cpsat"
    """Entry point in `gangsched.placers`: the nodes of a gang. The default counts first, and solves
    only what counting cannot prove."""

    sharing: str = "drf"
    """Entry point in `gangsched.sharings`: which queue is next, at each level of their tree."""

    backfill: str = "easy"
    """Entry point in `gangsched.backfills`: which gangs get a backfill reservation."""

    preemptor: str = "cheapest"
    """Entry point in `gangsched.preemptors`: which gangs are preempted."""

    sharing_options: dict[str, Any] = {}
    backfill_options: dict[str, Any] = {}
    preemptor_options: dict[str, Any] = {}
    order_options: dict[str, Any] = {}
    placer_options: dict[str, Any] = {}
    """Fields of the policy's class: `{objectives: [domains, leftover], budget: 0.5}` for cpsat."""


_ADDRESS = re.compile(r"[!-~]{1,1000}")
_OBJECT_NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
_OBJECT = r"^[^/]+/[^/]+$"
_EXPERIMENT = r"^[A-Za-z0-9._/{} -]{0,200}$"
RUN_VARIABLES = ("MLFLOW_TRACKING_URI", "MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_NAME")
"""Variables that name the run of a job to its pods."""


def _http_address(text: str) -> str:
    """Return the address of an HTTP server without a slash at its end.

    Raises:
        ValueError: it is none.

    """
    allowed = "an address such as https://mlflow.example.com:5000 is allowed, without user names"
    try:
        parts = urlsplit(text if _ADDRESS.fullmatch(text) else "")
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "@" in parts.netloc or "?" in text or "#" in text:
        raise ValueError(allowed)
    return text.rstrip("/")


HttpAddress = Annotated[str, AfterValidator(_http_address)]


class NamespaceTracking(BaseModel):
    """The settings of one namespace in `tracking`; an absent one is that of the cluster."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    enabled: bool = True
    """Whether jobs of the namespace get runs."""

    uri: HttpAddress | None = None
    """Another server. Then `pods_uri`, `ui_uri` and `secret` of the cluster do not apply."""

    pods_uri: HttpAddress | None = None
    ui_uri: HttpAddress | None = None
    secret: str | None = Field(None, pattern=_OBJECT)
    experiment: str | None = Field(None, pattern=_EXPERIMENT)


class TrackingConfig(BaseModel):
    """The MLflow server on which every job gets a run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    uri: HttpAddress
    """Address of the server for gangsched."""

    pods_uri: HttpAddress | None = None
    """Address of the server for pods. Default: `uri`."""

    ui_uri: HttpAddress | None = None
    """Address of the server for browsers, in the link of a job. Default: `uri`."""

    secret: str | None = Field(None, pattern=_OBJECT)
    """Secret (namespace/name) with the credentials of gangsched: the key `token`, or the keys
    `username` and `password`. Pods never get it."""

    pods_secret: str = Field("mlflow-credentials", pattern=_OBJECT_NAME)
    """Name of the Secret in the namespace of a job with the credentials of its pods. The keys are
    the same. Pods of a namespace without it get no credentials."""

    experiment: str = Field("{namespace}", pattern=_EXPERIMENT)
    """Experiment of jobs that name none. `{namespace}` is the namespace of the job."""

    experiment_prefix: str = Field("{namespace}/", pattern=_EXPERIMENT)
    """Beginning of the name of an experiment that a job names by an annotation. With an empty one,
    jobs of all namespaces may use the same experiments."""

    jobs: Literal["all", "named"] = "all"
    """Jobs that get a run: all, or those with an annotation that asks for it."""

    wait_s: float = Field(1.0, ge=0, le=10)
    """Seconds at most that the pods of a job wait for its run, counted from the first sight of the
    job. After a failure no job waits for half a minute."""

    timeout_s: float = Field(5.0, gt=0, le=60)
    """Seconds that one call of the server may take."""

    namespaces: dict[str, NamespaceTracking] = {}
    """Other values for namespaces, by name."""


class HistorySettings(BaseModel):
    """Where records of gangs that ended are kept."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Path
    """The file (SQLite). Its folder is created."""

    mib_max: int = Field(256, ge=1, le=65_536)
    """MiB that it may have, some half a million records; then the oldest are dropped."""

    days_max: float = Field(400.0, gt=0, le=36_500)
    """Days after which a record is dropped."""


class SchedulerConfig(PolicyConfig):
    """Settings of `gangsched run`, from a YAML file or from its flags."""

    scheduler_name: str = Field("gangsched", min_length=1)
    """Pods with this `spec.schedulerName` are scheduled by gangsched."""

    scheduler_aliases: tuple[str, ...] = ()
    """Further scheduler names of gangsched: those of schedulers that it replaces, such as
    `volcano`."""

    schedule_timeout_s: float = Field(60.0, gt=0)
    """Seconds from reservation to the barrier, unless the gang sets `scheduleTimeoutSeconds`. A job
    controller creates a thousand pods in a few seconds; after a minute a pod does not come."""

    backoff_s: float = Field(1.0, gt=0)
    """Seconds before a gang is planned again that was torn down; doubles each time."""

    backoff_max_s: float = Field(60.0, gt=0)
    """Longest back-off in seconds; most causes are mended sooner."""

    node_exclusion_s: float = Field(60.0, gt=0)
    """Seconds that a gang avoids a node which refused one of its members. If no other node has free
    capacity, the node is tried again after the back-off."""

    repartition_s: float = Field(600.0, gt=0)
    """Seconds that a gang waits for a repartition (a mig-manager may restart the GPU clients of the
    node) or for moved gangs to terminate, before it is planned again."""

    checkpoint_grace_max_s: float = Field(600.0, ge=0)
    """Seconds at most that a gang with `checkpointGraceSeconds` gets to save its work before it is
    stopped; the capacity that it leaves is reserved meanwhile. 0: every gang is stopped at once."""

    mig_config_map: str = Field("gpu-operator/gangsched-mig-config", pattern=r"^[^/]+/[^/]+$")
    """ConfigMap (namespace/name) from which NVIDIA's mig-manager reads its layouts."""

    advice_ttl_s: float = Field(30.0, gt=0)
    """Seconds until advice for a refused gang is computed again, since the cluster changes."""

    advice_interval_s: float = Field(0.5, gt=0)
    """Seconds between rounds of advice, which share the machine with planning."""

    defragment: Literal["off", "advise", "apply"] = "advise"
    """Whether gangs may be moved for a refused gang: never, as advice alone, or in fact."""

    defragment_gpu_s: float = Field(36_000.0, ge=0)
    """GPU-seconds of work that one defragmentation may lose; 36,000 are ten GPU-hours."""

    defragment_gangs: int = Field(4, ge=1, le=64)
    """Gangs that one defragmentation may move."""

    gpu_weights: dict[str, Annotated[float, Field(gt=0)]] = {}
    """Weights of GPU types for shares and budgets: `{H100: 2, A100: 1}`. A GPU type is a part of
    the product name; other GPUs have weight 1."""

    gpu_prices: dict[str, Annotated[float, Field(ge=0, le=1_000_000)]] = {}
    """Price of a GPU for an hour by GPU type: `{H100: 4.1, A100: 1.9}`. With it the records of
    `history` say what each gang cost; GPUs of other types cost nothing there."""

    half_life_s: float = Field(604_800.0, gt=0)
    """Half-life in seconds of past GPU time in fair shares; the default is a week, as in Slurm."""

    history_config_map: str = Field("gangsched-system/gangsched-history", pattern=r"^[^/]+/[^/]+$")
    """ConfigMap (namespace/name) that keeps learned run times across restarts."""

    gang_history_config_map: str = Field(
        "gangsched-system/gangsched-past", pattern=r"^[^/]+/[^/]+$"
    )
    """ConfigMap (namespace/name) that keeps the history of gangs across restarts: backfill
    reservations, back-off, excluded nodes."""

    history_interval_s: float = Field(60.0, gt=0)
    """Seconds between writes of learned run times."""

    retry_interval_s: float = Field(10.0, gt=0)
    """Seconds until refused gangs are planned again although no capacity was freed."""

    ready_tries: int = Field(5, ge=1)
    """Times that a gang may fail to become ready before it is not started again."""

    forecast_interval_s: float = Field(10.0, gt=0)
    """Seconds between forecasts of start times."""

    forecast_runs: int = Field(7, ge=1, le=101)
    """Runs of a forecast: it reports their median and range, widened by earlier errors."""

    forecast_cycles: int = Field(100, ge=1)
    """Planning cycles in each run, which limit how far a forecast looks and what it costs."""

    job_kinds: tuple[str, ...] | None = None
    """Kinds of jobs that gangsched runs even if another operator does, such as
    `[PyTorchJob, JobSet]`; `[]` is none. Default: all kinds that no other operator runs."""

    job_env: dict[str, str] = Field(default_factory=dict)
    """Variables for every container of the pods of jobs, such as `{MLFLOW_TRACKING_URI: ...}`. A
    variable that a container sets itself has precedence."""

    tracking: TrackingConfig | None = None
    """MLflow server on which every job gets one run, such as `{uri: "http://mlflow:5000"}`; its
    fields are on the page about tracking. Default: jobs get no runs."""

    provisioning: ProvisioningConfig | None = None
    """Request nodes from Cluster Autoscaler for gangs that lack nodes; `{}` takes all defaults. Its
    fields are on the page about autoscaling. Default: no nodes are requested."""

    karpenter: KarpenterConfig | None = None
    """Buy nodes from Karpenter for gangs that lack nodes; not together with `provisioning`. Its
    fields are on the page about autoscaling. Default: no nodes are bought."""

    placeholders: PlaceholderConfig | None = None
    """Ask any other autoscaler for nodes by placeholder pods; not together with the other two; `{}`
    takes all defaults. Its fields are on the page about autoscaling. Default: no such pods."""

    warm: tuple[WarmGuarantee, ...] = Field((), max_length=100)
    """Guarantees for which autoscalers with CapacityBuffers keep nodes ready. Its fields are on the
    page about autoscaling."""

    job_metrics_namespaces: tuple[str, ...] | None = None
    """Namespaces that the metrics `training_operator_jobs_*` name, such as `[vision, speech]`; all
    others are `other`. Default: the first 100 with jobs."""

    schedule_trials: bool = True
    """Whether gangsched schedules pods of Experiments' Jobs if the template names no scheduler."""

    evaluation_s: float = Field(EVALUATION_S.most, ge=1)
    """Seconds that one evaluation may take: the search for the next points of an Experiment,
    reading the log of a trial, or matching the patterns of a JobSet. Two processes evaluate, for
    namespaces in turn."""

    evaluation_mib: int = Field(EVALUATION_MIB.most, ge=128)
    """MiB of memory of each of the two evaluation processes, beside that of the scheduler."""

    background_cpu_share: float = Field(0.2, gt=0, le=1)
    """Share of a core that advice, and forecasts, may each take. They share the interpreter with
    planning and binding."""

    audit_interval_s: float = Field(30.0, gt=0)
    """Seconds between audits that compare the usage of queues with running pods."""

    binds_in_flight: int = Field(64, ge=1, le=1024)
    """Bind calls in flight at once. On two cores 64 are faster than 32, and 128 are not faster."""

    plan_interval_s: float = Field(0.02, ge=0)
    """Seconds between planning cycles, so that gangs that arrive together are planned together."""

    plan_deadline_s: float = Field(20.0, gt=0)
    """Seconds that planning one gang may take; it usually takes milliseconds. A gang that takes
    longer is quarantined, and the other gangs are planned. If planning does not stop within as many
    seconds more, this process ends, and the next leader quarantines the gang."""

    advice_deadline_s: float = Field(60.0, gt=0)
    """Seconds that advice for one refused gang may take, some tens of plans."""

    forecast_deadline_s: float = Field(300.0, gt=0)
    """Seconds that one forecast of start times may take, hundreds of plans."""

    queued_binds_max: int = Field(2_000, ge=1)
    """Bind calls that may be queued before planning pauses, so that later gangs are chosen late."""

    planned_pods_max: int = Field(500_000, ge=1)
    """Pods of PodGroups with templates in one namespace. Each takes some hundred bytes of memory
    before it exists. Further groups wait, and their status says so."""

    name_other_namespaces: bool = False
    """Whether texts for users name gangs of other namespaces, and queues that their namespace may
    not use: statuses and Events of gangs, conditions of evicted pods, statuses of Queues. By
    default such gangs are counted. The log, the audit log and `gangsched explain` always name
    them."""

    startup_delay_s: float = Field(0.5, ge=0)
    """Seconds between the first listing and the first plan: by then the watch has received the
    binds of an earlier process."""

    journal: Path | None = None
    """File to which every fact and decision is appended, for `gangsched replay`. It grows by some
    kilobytes for each pod, and by five lines a second. Default: none."""

    audit: Path | None = None
    """File of the audit log, one JSON object a line: preempted gangs, for which gang and why,
    deleted pods, changed queues. `/dev/stdout` if a collector reads it. Default: none."""

    history: HistorySettings | None = None
    """File with a record of each gang that ended, for `gangsched history`. Default: none."""

    grafana: str | None = Field(None, pattern=r"^https?://[^\s\"'<>]{1,1000}$")
    """Address of the Grafana that has our dashboards: the pages of `gangsched web` link to them."""

    leader_elect: bool = False
    """Whether several processes run in one cluster: one leads, the others stand by."""

    lease: str = Field("gangsched-system/gangsched", pattern=r"^[^/]+/[^/]+$")
    """Lease (namespace/name) that the leader holds."""

    lease_s: float = Field(8.0, ge=2, le=300)
    """Seconds that a Lease is valid. Its holder stops acting after five eighths of them without a
    renewal. Another process takes over after all of them."""

    extender_host: str = "127.0.0.1"
    """Address on which the extender and /metrics listen."""

    tls_secret: str | None = Field(None, pattern=r"^[^/]+/[^/]+$")
    """Secret (namespace/name) with the certificates of the ports, created if it is missing. With it
    the extender accepts only clients with a certificate of its authority."""

    tls_host: str = "gangsched-leader.gangsched-system.svc"
    """Name in the certificate: the Service by which kube-scheduler finds the leader."""

    metrics_access: Literal["open", "reviewed"] = "open"
    """Clients that may read /metrics: all, or users with the permission to `get` it."""

    extender_port: int = Field(0, ge=0, le=65535)
    """Port of the extender; 0 takes a free one."""

    metrics_port: int = Field(0, ge=0, le=65535)
    """Port of /metrics; 0 takes a free one, printed at start."""

    @model_validator(mode="after")
    def _one_source_of_runs(self) -> Self:
        both = [name for name in RUN_VARIABLES if name in self.job_env]
        if self.tracking is not None and both:
            raise ValueError(f"tracking sets the variable {both[0]}; remove it from job_env")
        return self

    @field_validator("warm")
    @classmethod
    def _warm_names_differ(cls, warm: tuple[WarmGuarantee, ...]) -> tuple[WarmGuarantee, ...]:
        check_names_differ("entries", (one.name for one in warm))
        return warm

    @model_validator(mode="after")
    def _one_source_of_nodes(self) -> Self:
        sources = ("karpenter", "provisioning", "placeholders")
        used = [name for name in sources if getattr(self, name) is not None]
        if len(used) > 1:
            raise ValueError(f"{used[0]} and {used[1]} both bring nodes; remove one of them")
        return self


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
    values = _renamed(values, path)
    stranger = next(strangers(SchedulerConfig, values), None)
    if stranger is not None:
        raise ConfigError(f"{path}: {stranger}")
    values |= {key: value for key, value in overrides.items() if value is not None}
    try:
        return SchedulerConfig.model_validate(values)
    except ValidationError as error:
        raise ConfigError(one_sentence(error, str(path or "flags"))) from error


def _renamed(values: Mapping[object, object], path: Path | None) -> dict[object, object]:
    """Return the settings of a file under their present names; log each former name.

    Raises:
        ConfigError: the file has a setting under both names.

    """
    named: dict[object, object] = {}
    for key, value in values.items():
        name = FORMER_NAMES.get(key) if isinstance(key, str) else None
        if name in values:
            raise ConfigError(
                f"{path}: {name} and its former name {key} are both set; remove {key}"
            )
        if name is not None:
            log.warning("%s: setting %s is named %s now; the former name is read", path, key, name)
        named[name or key] = value
    return named


def one_sentence(error: ValidationError, subject: str) -> str:
    """Write a pydantic error as: object, field, value, what is allowed."""
    parts = []
    for item in error.errors()[:_ERRORS_SHOWN]:
        field = ".".join(str(part)[:_LETTERS_OF_FIELD] for part in item["loc"]) or "(whole)"
        wrong, value = item["type"], item["input"]
        implied = wrong in ("missing", "extra_forbidden") or isinstance(value, dict)
        implied = implied or (wrong == "value_error" and isinstance(value, list))
        got = "" if implied else f" (got {shown(value)})"
        problem = item["msg"].removeprefix("Value error, ")
        parts.append(f"{field}: {problem[:1].lower()}{problem[1:]}{got}")
    more = error.error_count() - len(parts)
    return f"{subject}: " + "; ".join(parts) + (f"; and {more} more" if more else "")


# -- fields that there are not -------------------------------------------------------------------


def strangers(annotation: Any, value: object, where: str = "") -> Iterator[str]:
    """Yield a sentence for each field that no model has, with the nearest one that there is."""
    if isinstance(value, list):
        for at, item_value in enumerate(value):
            for item in _parts(annotation, (tuple, list)):
                yield from strangers(item, item_value, f"{where}[{at}]")
        return
    model = next(_parts(annotation, ()), None)
    if not isinstance(value, dict) or model is None:
        return
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    fields = {name: field for name, field in fields.items() if not field.exclude}
    for name, item_value in value.items():
        path = f"{where}.{name}".lstrip(".")
        if name in fields:
            yield from strangers(fields[name].annotation, item_value, path)
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
        for argument in get_args(annotation):
            yield from _parts(argument, of)
    elif origin in of:
        for argument in get_args(annotation):
            yield from _parts(argument, ())
    elif not of and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
