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
from gangsched.api.crdgen import manifest
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
    """Return the text of a cell; what looks like a tag outside of back ticks is text."""
    parts = " ".join(text.split()).replace("|", "\\|").split("`")
    return "`".join(one if at % 2 else one.replace("<", "&lt;") for at, one in enumerate(parts))


def code(value: object) -> str:
    """Return a value between back ticks; "" for none."""
    text = "" if value is None else str(value)
    return f"`{text}`" if text else ""


# -- kinds ---------------------------------------------------------------------------------------


def kinds(crds: tuple[Crd, ...]) -> str:
    """Return the sections of custom resources: every field with type, default and description."""
    parts = []
    for crd in crds:
        version = manifest(crd)["spec"]["versions"][0]
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
        return ", ".join(code(one or '""') for one in field["enum"])
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
    names = {command.name for command in app.registered_commands}
    if not {point.name for point in entry_points(group="gangsched.commands")} <= names:
        add_plugin_commands()
    return "".join(_command(typer.main.get_command(app), "gangsched"))


def _command(command: Any, path: str) -> Iterator[str]:
    below = getattr(command, "commands", {})
    if path != "gangsched":
        text = inspect.cleandoc(command.help or "").replace("\f", "").strip()
        yield f"## {path}\n\n{text}\n\n"
        rows = [_option(one) for one in command.params if not one.hidden]
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
    whole = Metrics()
    found = {}
    for one in vars(whole).values():
        if isinstance(one, Counter | Gauge | Histogram):
            (family,) = one.describe()
            suffix = "_total" if family.type == "counter" else ""
            labels = tuple(one._labelnames)
            found[family.name + suffix] = (family.type, labels, family.documentation)
    whole.queues.figures["any"] = QueueFigures()
    whole.queues.fragmentation = 0.0
    for family in whole.queues.collect():
        labels = tuple(getattr(family, "_labelnames", ()))
        found[family.name] = (family.type, labels, family.documentation)
    rows = (
        (code(name), kind, ", ".join(map(code, labels)), text)
        for name, (kind, labels, text) in sorted(found.items())
    )
    return table(("metric", "type", "labels", "meaning"), rows)


# -- settings and policies -----------------------------------------------------------------------


@cache
def _texts(module: str) -> dict[tuple[str, str], str]:
    """Return the strings that stand below fields, by class and field."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    found = {}
    for owner in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for field, text in zip(owner.body, owner.body[1:], strict=False):
            said = text.value if isinstance(text, ast.Expr) else None
            if isinstance(field, ast.AnnAssign) and isinstance(said, ast.Constant):
                found[owner.name, ast.unparse(field.target)] = str(said.value)
    return found


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
    text = ", ".join(code(one) for one in get_args(kind)) if get_origin(kind) is Literal else text
    limits = [part for part in map(_limit, field.metadata) if part]
    return ", ".join([text.replace("tuple[str]", "list of str"), *limits])


def _limit(rule: object) -> str:
    words = {"gt": ">", "ge": "≥", "lt": "<", "le": "≤"}
    found = [f"{sign} {getattr(rule, name)}" for name, sign in words.items() if hasattr(rule, name)]
    return ", ".join(found)


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
        code(one.name if one.default is MISSING else f"{one.name}: {one.default}")
        for one in fields(policy)
    )


def api_of_policies() -> str:
    """Return the names of `gangsched.policy_api`, with signatures and docstrings."""
    parts = [f"{inspect.getdoc(policy_api)}\n\n"]
    for name in policy_api.__all__:
        one = getattr(policy_api, name)
        parts.append(f"## {name}\n\n")
        if callable(one) and inspect.isfunction(one):
            parts.append(f"```python\n{name}{inspect.signature(one)}\n```\n\n")
        if inspect.isclass(one) or inspect.isfunction(one):
            parts.append(f"{inspect.getdoc(one) or ''}\n\n")
            parts += [f"```python\n{text}\n```\n\n" for text in _methods(one)]
        else:
            parts.append(f"{code(one)}\n\n")
    return "".join(parts)


def _methods(one: Any) -> Iterator[str]:
    if not getattr(one, "_is_protocol", False):
        return
    for name, method in vars(one).items():
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
        "Generated from `gangsched/api`, as the files of `crds/` are.",
        lambda: kinds(tuple(crd for crd in CRDS if crd.group == OURS)),
    ),
    "job-kinds": (
        "Kinds of jobs",
        "What gangsched reads of each kind of job; [Jobs](../jobs/index.md) has guides.",
        lambda: kinds(tuple(crd for crd in CRDS if crd.group != OURS)),
    ),
    "commands": ("Commands", "`kubectl gang` is the same command.", commands),
    "settings": (
        "Settings",
        "The YAML file of `gangsched run --config FILE`. An unknown field is an error.",
        settings,
    ),
    "policies": (
        "Policies",
        "Every policy that is installed. [Writing a policy](../policies.md) adds one.",
        policies,
    ),
    "policy-api": ("gangsched.policy_api", "", api_of_policies),
    "refusals": (
        "Reasons of refusals",
        "A reason is that of the PodGroup's condition and a label of `gangsched_gangs_refused`.",
        refusals,
    ),
    "metrics": (
        "Metrics",
        "Served on `/metrics`; [Operations](../operations.md) has the alerts.",
        metrics,
    ),
    "bounds": (
        "Bounds",
        "What users size has a bound; [Operations](../operations.md#bounds) says what follows.",
        bounds,
    ),
}
"""Pages of the reference, in the site's order: title, first sentence, and how to write the rest."""


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
