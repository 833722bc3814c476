"""Writes the reference of the site from the code: kinds, commands, metrics, settings, policies.

`pages()` returns each page's path and Markdown text; docs/collect.py adds them to the site.
`python docs/reference.py FOLDER` writes them as files.
"""

import ast
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer.main
from bounds import table as bounds_table
from prometheus_client import Counter, Gauge, Histogram
from pydantic.fields import FieldInfo
from reasons import REASONS, REMEDIES

from gangsched import policy_api
from gangsched.api.crdgen import crd_manifest
from gangsched.api.crds import CRDS, Crd
from gangsched.cli.main import add_plugin_commands, app
from gangsched.config import POLICY_GROUPS, PolicyConfig, SchedulerConfig
from gangsched.core.model.refusal import Reason
from gangsched.metrics import Metrics, QueueFigures

OURS = "gangsched.io"
_DEFAULT_LETTERS = 60


def table(heads: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ("---",) * len(heads), *rows]
    return "".join("| " + " | ".join(map(_cell, line)) + " |\n" for line in lines)


def _cell(text: str) -> str:
    """Return the text of a cell; a `<` outside of back ticks is text, not a tag."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    return "`".join(part if at % 2 else part.replace("<", "&lt;") for at, part in enumerate(parts))


def code(value: object) -> str:
    """Return a value between back ticks; "" for none."""
    text = "" if value is None else str(value)
    return f"`{text}`" if text else ""


# -- kinds ---------------------------------------------------------------------------------------


def kinds(crds: tuple[Crd, ...]) -> str:
    """Return the sections of custom resources: every field with type, default and description."""
    parts = []
    for crd in crds:
        version = crd_manifest(crd)["spec"]["versions"][0]
        schema = version["schema"]["openAPIV3Schema"]["properties"]
        short = f", short {', '.join(map(code, crd.short))}" if crd.short else ""
        parts.append(
            f"## {crd.kind}\n\n`{crd.group}/{crd.version}`, {crd.scope.lower()}{short}. "
            f"{schema['spec'].get('description', '')}\n\n"
        )
        for top in ("spec", "status"):
            rows = list(_fields(schema[top], top))
            if rows:
                parts.append(f"### {crd.kind} {top}\n\n")
                parts.append(table(("field", "type", "default", "description"), iter(rows)) + "\n")
    return "".join(parts)


def _fields(schema: dict[str, Any], where: str) -> Iterator[tuple[str, ...]]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        path = f"{where}.{name}"
        default = "required" if name in required else _default(field)
        yield code(path), _type(field), default, field.get("description", "")
        while field.get("type") == "array" or isinstance(field.get("additionalProperties"), dict):
            path += "[]" if field.get("type") == "array" else ".*"
            field = field.get("items") or field["additionalProperties"]  # noqa: PLW2901 -- inwards
        yield from _fields(field, path)


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    if value in (None, "", [], {}):
        return ""
    text = str(value)
    return code(text) if len(text) <= _DEFAULT_LETTERS else code(text[:_DEFAULT_LETTERS] + " ...")


def _type(field: dict[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in field:
        return ", ".join(code(value or '""') for value in field["enum"])
    kind = field.get("type", "any")
    if kind == "array":
        return f"list of {_type(field['items'])}"
    more = field.get("additionalProperties")
    if isinstance(more, dict):
        return f"map of {_type(more)}"
    low, high = field.get("minimum"), field.get("maximum")
    if low is None and high is None:
        return str(kind)
    sign = ">" if field.get("exclusiveMinimum") else "≥"
    bounds = [f"{sign} {low}"] if low is not None else []
    return f"{kind}, " + ", ".join([*bounds, *([f"≤ {high}"] if high is not None else [])])


# -- commands ------------------------------------------------------------------------------------


def commands() -> str:
    """Return the sections of all commands, with their arguments and options."""
    add_plugin_commands()
    return "".join(_command(typer.main.get_command(app), "gangsched"))


def _command(command: Any, path: str) -> Iterator[str]:
    below = getattr(command, "commands", {})
    if path != "gangsched":
        text = inspect.cleandoc(command.help or "").replace("\f", "").strip()
        yield f"## {path}\n\n{text}\n\n"
        rows = [_option(param) for param in command.params if not param.hidden]
        if rows and not below:
            yield table(("parameter", "value", "default", "meaning"), iter(rows)) + "\n"
    for name in sorted(below):
        yield from _command(below[name], f"{path} {name}")


def _option(parameter: Any) -> tuple[str, ...]:
    is_option = parameter.param_type_name == "option"
    names = [*parameter.opts, *parameter.secondary_opts] if is_option else [parameter.name.upper()]
    default = "required" if parameter.required else ""
    if isinstance(parameter.default, str | int | float) and parameter.default not in ("", False):
        default = code(parameter.default)
    kind = parameter.type_descriptor.annotation
    value = "" if kind is bool else str(getattr(kind, "__name__", kind)).removeprefix("pathlib.")
    if getattr(kind, "__args__", ()):
        value = str(kind)
    return ", ".join(map(code, names)), value, default, getattr(parameter, "help", "") or ""


# -- metrics -------------------------------------------------------------------------------------


def metrics() -> str:
    """Return the table of every metric: name, type, labels and meaning."""
    registry = Metrics()
    families = {}
    for metric in (*vars(registry).values(), *registry.jobs.counters()):
        if isinstance(metric, Counter | Gauge | Histogram):
            (family,) = metric.describe()
            suffix = "_total" if family.type == "counter" else ""
            labels = tuple(metric._labelnames)
            families[family.name + suffix] = (family.type, labels, family.documentation)
    registry.queues.figures["any"] = QueueFigures()
    registry.queues.fragmentation = 0.0
    for family in (*registry.queues.collect(), *registry.jobs.live.collect()):
        labels = tuple(getattr(family, "_labelnames", ()))
        families[family.name] = (family.type, labels, family.documentation)
    rows = (
        (code(name), kind, ", ".join(map(code, labels)), text)
        for name, (kind, labels, text) in sorted(families.items())
    )
    return table(("metric", "type", "labels", "meaning"), rows)


# -- settings and policies -----------------------------------------------------------------------


@cache
def _texts(module: str) -> dict[tuple[str, str], str]:
    """Return the docstrings of fields, by class and field."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    texts = {}
    for owner in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for field, text in zip(owner.body, owner.body[1:], strict=False):
            value = text.value if isinstance(text, ast.Expr) else None
            if isinstance(field, ast.AnnAssign) and isinstance(value, ast.Constant):
                texts[owner.name, ast.unparse(field.target)] = str(value.value)
    return texts


def settings() -> str:
    """Return the table of every setting of `gangsched run --config`."""
    texts = _texts("gangsched.config")
    rows = []
    for name, field in SchedulerConfig.model_fields.items():
        owner = "PolicyConfig" if name in PolicyConfig.model_fields else "SchedulerConfig"
        text = texts.get((owner, name), "")
        if name.endswith("_options"):
            text = text or "Options of that policy: the fields of its class."
        default = field.get_default(call_default_factory=True)
        shown = "" if default in (None, (), {}) else code(default)
        rows.append((code(name), _annotation(field), shown, text))
    return table(("setting", "type", "default", "meaning"), iter(rows))


def _annotation(field: FieldInfo) -> str:
    kind = field.annotation
    text = kind.__name__ if isinstance(kind, type) else str(kind)
    for old in ("typing.", "pathlib._local.", "pathlib.", " | None", ", ..."):
        text = text.replace(old, "")
    text = "map" if text.startswith("dict") else text
    text = ", ".join(map(code, get_args(kind))) if get_origin(kind) is Literal else text
    limits = [part for part in map(_limit, field.metadata) if part]
    return ", ".join([text.replace("tuple[str]", "list of str"), *limits])


def _limit(rule: object) -> str:
    words = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    return ", ".join(
        f"{sign} {getattr(rule, name)}" for name, sign in words.items() if hasattr(rule, name)
    )


def policies() -> str:
    """Return the sections of all installed policies, by the setting that names one of them."""
    parts = []
    for setting, group in POLICY_GROUPS.items():
        default = PolicyConfig.model_fields[setting].default
        parts.append(f"## {setting}\n\nEntry points of `{group}`; the default is `{default}`.\n\n")
        rows = (
            (code(point.name), _summary(point.load()), _options(point.load()))
            for point in sorted(entry_points(group=group))
        )
        parts.append(table(("name", "what it does", "options"), rows) + "\n")
    return "".join(parts)


def _summary(policy: type) -> str:
    module = inspect.getdoc(importlib.import_module(policy.__module__)) or ""
    return module.split("\n\n")[0]


def _options(policy: type) -> str:
    if not is_dataclass(policy):
        return ""
    return ", ".join(
        code(field.name if field.default is MISSING else f"{field.name}: {field.default}")
        for field in fields(policy)
    )


def api_of_policies() -> str:
    """Return the names of `gangsched.policy_api`, with signatures and docstrings."""
    parts = [f"{inspect.getdoc(policy_api)}\n\n"]
    for name in policy_api.__all__:
        value = getattr(policy_api, name)
        parts.append(f"## {name}\n\n")
        if inspect.isfunction(value):
            parts.append(f"```python\n{name}{inspect.signature(value)}\n```\n\n")
        if inspect.isclass(value) or inspect.isfunction(value):
            parts.append(f"{inspect.getdoc(value) or ''}\n\n")
            parts += [f"```python\n{text}\n```\n\n" for text in _methods(value)]
        else:
            parts.append(f"{code(value)}\n\n")
    return "".join(parts)


def _methods(value: Any) -> Iterator[str]:
    if not getattr(value, "_is_protocol", False):
        return
    for name, method in vars(value).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            doc = (inspect.getdoc(method) or "").replace("\n", "\n    ").replace("    \n", "\n")
            yield f'def {name}{inspect.signature(method)}:\n    """{doc}"""'


# -- refusals and bounds -------------------------------------------------------------------------


def refusals() -> str:
    """Return the tables of reasons and of remedies."""
    assert set(REASONS) == set(Reason), "docs/reasons.py has a row for each reason"
    rows = ((code(reason.value), *REASONS[reason]) for reason in Reason)
    text = table(("reason", "meaning", "what to do"), rows)
    remedies = ((code(kind), meaning) for kind, meaning in REMEDIES.items())
    return f"{text}\n## Remedies\n\n{REMEDIES_HEAD}\n\n{table(('kind', 'change'), remedies)}"


REMEDIES_HEAD = (
    "`status.refusal.remedies` of a PodGroup lists changes that let the gang start. Each was "
    "checked by planning the gang with it."
)


def bounds() -> str:
    """Return the table of docs/bounds.py."""
    return bounds_table()


PAGES: dict[str, tuple[str, str, Callable[[], str]]] = {
    "kinds": (
        "Kinds of gangsched.io",
        "The kinds of gangsched, generated from `gangsched/api` as the files of `crds/` are.",
        lambda: kinds(tuple(crd for crd in CRDS if crd.group == OURS)),
    ),
    "job-kinds": (
        "Kinds of jobs",
        "The fields that gangsched reads of each kind of job; [Jobs](../jobs/index.md) has guides.",
        lambda: kinds(tuple(crd for crd in CRDS if crd.group != OURS)),
    ),
    "commands": (
        "Commands",
        "All commands with their options. `kubectl gang` is the same command as `gangsched`.",
        commands,
    ),
    "settings": (
        "Settings",
        "The YAML file of `gangsched run --config FILE`. An unknown field is an error.",
        settings,
    ),
    "policies": (
        "Policies",
        "All installed policies. [Writing a policy](../policies.md) shows how to add a policy.",
        policies,
    ),
    "policy-api": ("gangsched.policy_api", "", api_of_policies),
    "refusals": (
        "Reasons of refusals",
        "A reason is in the condition of the PodGroup, and a label of `gangsched_gangs_refused`.",
        refusals,
    ),
    "metrics": (
        "Metrics",
        "All metrics of `/metrics`. [Operations](../operations.md#alerts) describes the alerts.",
        metrics,
    ),
    "bounds": (
        "Bounds",
        "The bounds of everything that users size; see [Operations](../operations.md#bounds).",
        bounds,
    ),
}
"""Pages of the reference in the order of the site: title, first paragraph, function of the rest."""


def pages() -> dict[str, str]:
    """Return the text of each page by its path in the site."""
    return {
        f"reference/{name}.md": f"# {title}\n\n{head}\n\n{write()}".replace("\n\n\n\n", "\n\n")
        for name, (title, head, write) in PAGES.items()
    }


if __name__ == "__main__":
    for path, text in pages().items():
        target = Path(sys.argv[1]) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
