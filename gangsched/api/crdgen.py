"""CRDs generated from the border models: `python -m gangsched.api.crdgen crds/`.

Pydantic writes JSON schema; Kubernetes wants a structural schema (KEP-1693 rules). The rewrite
inlines references, turns optionals into absent fields, and fails on what cannot be expressed.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel

from gangsched.api import names
from gangsched.api.podgroup import CoschedulingSpec, PodGroupSpec, PodGroupStatus
from gangsched.api.pytorchjob import PyTorchJobSpec
from gangsched.api.queue import QueueSpec, QueueStatus, ReservationSpec, ReservationStatus
from gangsched.api.topology import TopologySpec, TopologyStatus

Schema = dict[str, Any]

_KEPT = frozenset(
    {
        "type",
        "properties",
        "required",
        "items",
        "description",
        "enum",
        "format",
        "pattern",
        "minLength",
        "maxLength",
        "minItems",
        "maxItems",
        "minimum",
        "maximum",
        "exclusiveMinimum",
        "maxProperties",
        "default",
        "additionalProperties",
    }
)


class SchemaError(Exception):
    """A model says something a structural schema cannot."""


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


def _role_rules(schema: Schema) -> None:
    """MinCount may not be above count, for every role."""
    schema["spec"]["properties"]["roles"]["items"]["x-kubernetes-validations"] = [
        {
            "rule": "!has(self.minCount) || self.minCount <= self.count",
            "message": "minCount may not be above count",
        }
    ]


CRDS = (
    Crd(
        group=names.GROUP,
        version=names.VERSION,
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
            ("Head", "string", ".status.head.gang"),
            ("Message", "string", ".status.message"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
    ),
    Crd(
        group=names.GROUP,
        version=names.VERSION,
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
    Crd(
        group="kubeflow.org",
        version="v1",
        kind="PyTorchJob",
        plural="pytorchjobs",
        short=(),
        spec=PyTorchJobSpec,
        status=None,
        columns=(
            ("State", "string", ".status.conditions[-1:].type"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ),
        scale={
            "specReplicasPath": ".spec.pytorchReplicaSpecs.Worker.replicas",
            "statusReplicasPath": ".status.replicaStatuses.Worker.active",
            "labelSelectorPath": ".status.replicaStatuses.Worker.selector",
        },
    ),
)

FOREIGN = (
    Crd(
        group="scheduling.x-k8s.io",
        version="v1alpha1",
        kind="PodGroup",
        plural="podgroups",
        short=(),
        spec=CoschedulingSpec,
        status=None,
        columns=(("Min", "integer", ".spec.minMember"),),
        annotations={
            "api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/scheduler-plugins/pull/50"
        },
    ),
)
"""Groups we understand; real clusters bring their own definition, the local one gets this."""


def manifest(crd: Crd) -> Schema:
    """Return the CustomResourceDefinition."""
    spec = structural(crd.spec)
    if crd.spec_rules:
        spec["x-kubernetes-validations"] = [
            {"rule": rule, "message": message} for rule, message in crd.spec_rules
        ]
    status: Schema = (
        structural(crd.status)
        if crd.status is not None
        else {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    )
    properties = {"spec": spec, "status": status}
    if crd.tweak is not None:
        crd.tweak(properties)
    subresources: Schema = {"status": {}}
    if crd.scale is not None:
        subresources["scale"] = crd.scale
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{crd.plural}.{crd.group}"}
        | ({"annotations": crd.annotations} if crd.annotations else {}),
        "spec": {
            "group": crd.group,
            "scope": crd.scope,
            "names": {
                "kind": crd.kind,
                "listKind": f"{crd.kind}List",
                "plural": crd.plural,
                "singular": crd.kind.lower(),
            }
            | ({"shortNames": list(crd.short)} if crd.short else {}),
            "versions": [
                {
                    "name": crd.version,
                    "served": True,
                    "storage": True,
                    "subresources": subresources,
                    "additionalPrinterColumns": [
                        {"name": name, "type": kind, "jsonPath": path}
                        for name, kind, path in crd.columns
                    ],
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "required": ["spec"],
                            "properties": {
                                "apiVersion": {"type": "string"},
                                "kind": {"type": "string"},
                                "metadata": {"type": "object"},
                                **properties,
                            },
                        }
                    },
                }
            ],
        },
    }


def structural(model: type[BaseModel]) -> Schema:
    """Rewrite a model's JSON schema into a structural one.

    Raises:
        SchemaError: it holds something that cannot be expressed.

    """
    schema = model.model_json_schema()
    return _rewrite(schema, schema.get("$defs", {}), model.__name__)


def _rewrite(schema: Schema, definitions: Schema, where: str) -> Schema:
    if "$ref" in schema:
        target = definitions[schema["$ref"].rsplit("/", 1)[1]]
        schema = target | {key: value for key, value in schema.items() if key != "$ref"}
    extra = {key: value for key, value in schema.items() if key.startswith("x-kubernetes-")}
    if "anyOf" in schema:
        return _union(schema, definitions, where) | extra
    unknown = set(schema) - _KEPT - {"title", "$defs", "$ref", "const", "uniqueItems"} - set(extra)
    if unknown:
        raise SchemaError(f"{where}: a structural schema has no {sorted(unknown)}")
    result = {key: value for key, value in schema.items() if key in _KEPT}
    result |= extra
    if "exclusiveMinimum" in result:  # a flag beside minimum in this dialect of JSON schema
        result["minimum"] = result["exclusiveMinimum"]
        result["exclusiveMinimum"] = True
    if "const" in schema:
        result["enum"] = [schema["const"]]
    if result.get("default", 0) is None:
        del result["default"]
    more = result.pop("additionalProperties", None)
    if "properties" in result:
        result["properties"] = {
            name: _rewrite(value, definitions, f"{where}.{name}")
            for name, value in result["properties"].items()
        }
    elif isinstance(more, dict):
        result["additionalProperties"] = _rewrite(more, definitions, f"{where}.*")
    elif result.get("type") == "object":
        result["x-kubernetes-preserve-unknown-fields"] = True
    if "items" in result:
        result["items"] = _rewrite(result["items"], definitions, f"{where}[]")
    return result


def _union(schema: Schema, definitions: Schema, where: str) -> Schema:
    """An optional is its value, absent when None; int or string has its own Kubernetes word."""
    branches = [branch for branch in schema["anyOf"] if branch.get("type") != "null"]
    common = {key: schema[key] for key in ("description",) if key in schema}
    if schema.get("default") is not None:
        common["default"] = schema["default"]
    if len(branches) == 1:
        return _rewrite(branches[0], definitions, where) | common
    if sorted(branch.get("type", "") for branch in branches) == ["integer", "string"]:
        return {"x-kubernetes-int-or-string": True} | common
    raise SchemaError(f"{where}: a union other than optional and int-or-string")


def render(crd: Crd) -> str:
    """Return a CRD as the YAML file that is checked in."""
    head = "# Generated by `make crds` from gangsched/api; edit the models, not this file.\n"
    return head + yaml.safe_dump(manifest(crd), sort_keys=False, width=100)


def rendered(folder: Path) -> dict[Path, str]:
    """Return every file of the folder and its text."""
    files = {folder / f"{crd.group}_{crd.plural}.yaml": render(crd) for crd in CRDS}
    foreign = folder / "foreign"
    return files | {foreign / f"{crd.group}_{crd.plural}.yaml": render(crd) for crd in FOREIGN}


def main() -> None:
    """Write every CRD into the folder given on the command line."""
    folder = Path(sys.argv[1])
    for path, text in rendered(folder).items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


if __name__ == "__main__":
    main()
