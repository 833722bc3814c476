"""The custom resources there are: ours, those of the jobs we run, and foreign groups we read."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from gangsched.api import names
from gangsched.api.jobs.jobset import JobSetSpec
from gangsched.api.jobs.katib import ExperimentSpec, SuggestionSpec, TrialSpec
from gangsched.api.jobs.trainer import RuntimeSpec, TrainJobSpec
from gangsched.api.jobs.trainingjobs import SPECS
from gangsched.api.podgroup import (
    CoschedulingSpec,
    KaiSpec,
    PodGroupSpec,
    PodGroupStatus,
    VolcanoSpec,
)
from gangsched.api.queue import QueueSpec, QueueStatus, ReservationSpec, ReservationStatus
from gangsched.api.topology import TopologySpec, TopologyStatus

Schema = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Crd:
    """One custom resource definition, before it is written out."""

    group: str
    version: str
    kind: str
    plural: str
    short: tuple[str, ...]
    spec: type[BaseModel]
    status: type[BaseModel] | None
    columns: tuple[tuple[str, str, str], ...]
    spec_rules: tuple[tuple[str, str], ...] = ()
    tweak: Callable[[Schema], None] | None = None
    scale: Schema | None = None
    annotations: dict[str, str] = field(default_factory=dict)
    scope: str = "Namespaced"
    also: tuple[str, ...] = ()
    """Further versions that are served, with the same schema."""

    superseded: tuple[str, ...] = ()
    """The same, and users should write them no more."""


_QUANTITY_LETTERS = 32
"""Of a quantity as text; the API server bounds by it what the rules may cost."""


def _role_rules(schema: Schema) -> None:
    """What holds for every role of a group."""
    schema["spec"]["properties"]["roles"]["items"]["x-kubernetes-validations"] = [
        {
            "rule": "!has(self.minCount) || self.minCount <= self.count",
            "message": "minCount may not be above count",
        },
        {
            "rule": "!has(self.podName) || self.count == 1",
            "message": "podName names the only pod of a role; with more give none",
        },
    ]


def _quota_rules(schema: Schema) -> None:
    """What holds for quotas of a queue: each once, nothing negative, no more lent than there is."""
    quotas = schema["spec"]["properties"]["quotas"]
    quotas["x-kubernetes-list-type"] = "map"
    quotas["x-kubernetes-list-map-keys"] = ["resource", "gpuKind"]
    rules = []
    for name in ("nominal", "borrowingLimit", "lendingLimit"):
        quotas["items"]["properties"][name]["maxLength"] = _QUANTITY_LETTERS
        given = "" if name == "nominal" else f"!has(self.{name}) || "
        value = f"string(self.{name})"
        sentence = f"{name} of {{resource}} is {{value}}; a quantity of 0 or more is allowed"
        rules.append(
            {
                "rule": f"{given}isQuantity({value}) && "
                f"!quantity({value}).isLessThan(quantity('0'))",
                "message": f"{name} must be a quantity of 0 or more",
                "messageExpression": _as_cel(sentence, value),
                "fieldPath": f".{name}",
            }
        )
    lent, has = "string(self.lendingLimit)", "string(self.nominal)"
    rules.append(
        {
            "rule": f"!has(self.lendingLimit) || !isQuantity({lent}) || !isQuantity({has}) || "
            f"!quantity({lent}).isGreaterThan(quantity({has}))",
            "message": "lendingLimit may not be above nominal: a queue lends what it has",
            "fieldPath": ".lendingLimit",
        }
    )
    quotas["items"]["x-kubernetes-validations"] = rules
    limit = schema["spec"]["properties"]["userLimits"]["additionalProperties"]
    limit["maxLength"] = _QUANTITY_LETTERS
    limit["x-kubernetes-validations"] = [
        {
            "rule": "isQuantity(string(self)) && !quantity(string(self)).isLessThan(quantity('0'))",
            "message": "a limit must be a quantity of 0 or more",
            "messageExpression": "string(self) + ' is given; a quantity of 0 or more is allowed'",
        }
    ]


def _as_cel(sentence: str, value: str) -> str:
    """Return the CEL expression of a sentence about a resource and a value."""
    before, after = sentence.split("{resource}")
    between, end = after.split("{value}")
    return f"'{before}' + self.resource + '{between}' + {value} + '{end}'"


def _training_job(kind: str) -> Crd:
    plural = f"{kind.lower()}s"
    workers = {"PyTorchJob": ".spec.pytorchReplicaSpecs", "PaddleJob": ".spec.paddleReplicaSpecs"}
    scale = {
        "specReplicasPath": f"{workers.get(kind)}.Worker.replicas",
        "statusReplicasPath": ".status.replicaStatuses.Worker.active",
        "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
    }
    return Crd(
        group="kubeflow.org",
        version="v1",
        kind=kind,
        plural=plural,
        short=(),
        spec=SPECS[kind],
        status=None,
        columns=(
            ("State", "string", ".status.conditions[-1:].type"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
        scale=scale if kind in workers else None,
        also=("v2beta1",) if kind == "MPIJob" else (),
    )


RUNTIMES = {"ClusterTrainingRuntime": "Cluster", "TrainingRuntime": "Namespaced"}

CRDS = (
    Crd(
        group=names.GROUP,
        version=names.VERSION,
        superseded=names.SUPERSEDED,
        kind="PodGroup",
        plural="podgroups",
        short=("gang",),
        spec=PodGroupSpec,
        status=PodGroupStatus,
        columns=(
            ("Phase", "string", ".status.phase"),
            ("Min", "integer", ".spec.minMember"),
            ("Queue", "string", ".spec.queue"),
            ("Message", "string", ".status.message"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
        spec_rules=(
            (
                "has(self.minMember) || (has(self.roles) && size(self.roles) > 0)",
                "give minMember, or roles to count it from",
            ),
            (
                (
                    "!has(self.minMember) || !has(self.roles) || size(self.roles) == 0 || "
                    "self.minMember <= self.roles.map(r, r.count).sum()"
                ),
                "minMember may not be above the number of pods of all roles",
            ),
            (
                (
                    "!has(self.roles) || self.roles.all(r, has(r.template)) || "
                    "self.roles.all(r, !has(r.template))"
                ),
                "either every role has a template or none",
            ),
        ),
        tweak=_role_rules,
    ),
    Crd(
        group=names.GROUP,
        version=names.VERSION,
        superseded=names.SUPERSEDED,
        kind="Topology",
        plural="topologies",
        short=(),
        spec=TopologySpec,
        status=TopologyStatus,
        scope="Cluster",
        columns=(
            ("Nodes", "integer", ".status.nodes"),
            ("Misplaced", "integer", ".status.misplacedCount"),
            ("Message", "string", ".status.message"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
        spec_rules=(
            (
                "self.levels.all(a, self.levels.filter(b, b.nodeLabel == a.nodeLabel).size() == 1)",
                "a node label names only one level, or the levels would be a circle",
            ),
            (
                "self.levels.all(a, a.nodeLabel != 'kubernetes.io/hostname')",
                "the host is always the last level and must not be listed",
            ),
        ),
    ),
    Crd(
        group=names.GROUP,
        version=names.VERSION,
        superseded=names.SUPERSEDED,
        kind="Queue",
        plural="queues",
        short=(),
        spec=QueueSpec,
        status=QueueStatus,
        scope="Cluster",
        columns=(
            ("Parent", "string", ".spec.parent"),
            ("Pending", "integer", ".status.pending"),
            ("Admitted", "integer", ".status.admitted"),
            ("Next waits for", "string", ".status.head.reason"),
            ("Message", "string", ".status.message"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
        tweak=_quota_rules,
    ),
    Crd(
        group=names.GROUP,
        version=names.VERSION,
        superseded=names.SUPERSEDED,
        kind="Reservation",
        plural="reservations",
        short=(),
        spec=ReservationSpec,
        status=ReservationStatus,
        scope="Cluster",
        columns=(
            ("Phase", "string", ".status.phase"),
            ("Next", "string", ".status.nextStart"),
            ("Message", "string", ".status.message"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
        spec_rules=(
            (
                "(has(self.nodes) && size(self.nodes) > 0) != has(self.count)",
                "give nodes or count, one of them",
            ),
            (
                "!has(self.everySeconds) || self.everySeconds >= self.durationSeconds",
                "everySeconds may not be below durationSeconds: it would begin before it ends",
            ),
        ),
    ),
    *(_training_job(kind) for kind in SPECS),
    Crd(
        group="jobset.x-k8s.io",
        version="v1alpha2",
        kind="JobSet",
        plural="jobsets",
        short=(),
        spec=JobSetSpec,
        status=None,
        columns=(
            ("TerminalState", "string", ".status.terminalState"),
            ("Restarts", "string", ".status.restarts"),
            ("Completed", "string", '.status.conditions[?(@.type=="Completed")].status'),
            ("Suspended", "string", ".spec.suspend"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
    ),
    *(
        Crd(
            group="kubeflow.org",
            version="v1beta1",
            kind=kind,
            plural=f"{kind.lower()}s",
            short=(),
            spec=spec,
            status=None,
            columns=(
                ("Type", "string", ".status.conditions[-1:].type"),
                ("Status", "string", ".status.conditions[-1:].status"),
                ("Age", "date", ".metadata.creationTimestamp"),
            ),
        )
        for kind, spec in (
            ("Experiment", ExperimentSpec),
            ("Suggestion", SuggestionSpec),
            ("Trial", TrialSpec),
        )
    ),
    Crd(
        group="trainer.kubeflow.org",
        version="v1alpha1",
        kind="TrainJob",
        plural="trainjobs",
        short=(),
        spec=TrainJobSpec,
        status=None,
        columns=(
            ("State", "string", '.status.conditions[?(@.status=="True")].type'),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
        spec_rules=(("self.runtimeRef == oldSelf.runtimeRef", "runtimeRef is immutable"),),
    ),
    *(
        Crd(
            group="trainer.kubeflow.org",
            version="v1alpha1",
            kind=kind,
            plural=f"{kind.lower()}s",
            short=(),
            spec=RuntimeSpec,
            status=None,
            scope=scope,
            columns=(("Age", "date", ".metadata.creationTimestamp"),),
        )
        for kind, scope in (
            ("ClusterTrainingRuntime", "Cluster"),
            ("TrainingRuntime", "Namespaced"),
        )
    ),
)


_APPROVED = {
    "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
}


def _foreign(group: str, version: str, spec: type[BaseModel], **more: Any) -> Crd:
    return Crd(
        group=group,
        version=version,
        kind="PodGroup",
        plural="podgroups",
        short=(),
        spec=spec,
        status=None,
        columns=(("Phase", "string", ".status.phase"), ("Min", "integer", ".spec.minMember")),
        **more,
    )


FOREIGN = (
    _foreign("scheduling.x-k8s.io", "v1alpha1", CoschedulingSpec, annotations=_APPROVED),
    _foreign("scheduling.volcano.sh", "v1beta1", VolcanoSpec),
    _foreign("scheduling.run.ai", "v2alpha2", KaiSpec),
)
"""Groups we understand; real clusters bring their own definition, the local one gets these."""
