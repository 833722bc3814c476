"""CRDs generated from the border models: `python -m gangsched.api.crdgen crds/`.

Pydantic writes JSON schema; Kubernetes wants a structural schema (KEP-1693 rules). The rewrite
inlines references, turns optionals into absent fields, and fails on what cannot be expressed.
"""

import sys
from pathlib import Path

import yaml
from pydantic import BaseModel

from gangsched.api.crds import CRDS, FOREIGN, Crd, Schema

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


def crd_manifest(crd: Crd) -> Schema:
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
                    "name": version,
                    "served": True,
                    "storage": version == crd.version,
                    **_superseded(crd, version),
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
                for version in (crd.version, *crd.also, *crd.superseded)
            ],
        },
    }


def _superseded(crd: Crd, version: str) -> Schema:
    if version not in crd.superseded:
        return {}
    superseded = f"{crd.group}/{version} {crd.kind} is superseded by {crd.group}/{crd.version}"
    return {"deprecated": True, "deprecationWarning": f"{superseded}, which has the same fields"}


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
    return head + yaml.safe_dump(crd_manifest(crd), sort_keys=False, width=100)


def rendered(folder: Path) -> dict[Path, str]:
    """Return every file of the folder and its text."""
    files = {folder / f"{crd.group}_{crd.plural}.yaml": render(crd) for crd in CRDS}
    lines = "".join(f"- {path.name}\n" for path in sorted(files))
    files[folder / "kustomization.yaml"] = (
        f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n{lines}"
    )
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
