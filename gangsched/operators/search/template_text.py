"""Reads the template of a trial from the YAML of a ConfigMap, as Katib does.

Katib fills in the placeholders and reads the result. Here the text is read once: a placeholder that
is a whole plain scalar is marked, because its value may be a number (`replicas: ${...}`).
"""

import re
from typing import Any

import yaml

from gangsched.core.bounds import TEMPLATE_LETTERS
from gangsched.core.model.text import shown
from gangsched.jobs.common.model import Json
from gangsched.jobs.katib.experiment import PLAIN

_PLACEHOLDER = re.compile(r"\$\{[^}$\n]*\}")
_TOKEN = re.compile(r"placeholder-([0-9]+)-of-trial")
_LARGEST = 2**63
_TOKEN_TEXT = "placeholder-{}-of-trial"  # noqa: S105 -- no password


class TemplateError(Exception):
    """A text that is no template of a trial; the message is a clause with the reason."""


def parsed(text: str) -> Json:
    """Return the job of a template, with its placeholders.

    Raises:
        TemplateError: the text is too long, or no YAML of one object.

    """
    if len(text) > TEMPLATE_LETTERS.most:
        raise TemplateError(f"has {len(text)} letters; {TEMPLATE_LETTERS.most} are allowed")
    if _TOKEN.search(text):
        raise TemplateError(f"has the reserved text {shown(_TOKEN_TEXT.format('N'))}")
    placeholders: list[str] = []

    def token(match: "re.Match[str]") -> str:
        placeholders.append(match[0])
        return _TOKEN_TEXT.format(len(placeholders) - 1)

    loader = _loader(_PLACEHOLDER.sub(token, text), placeholders)
    try:
        document = loader.get_single_data()
        _check(document)
    except yaml.YAMLError as error:
        raise TemplateError(f"is no YAML: {_reason(error)}") from error
    except RecursionError:
        raise TemplateError("is nested too deeply") from None
    except ValueError as error:
        raise TemplateError(f"is no YAML: {shown(str(error))}") from error
    if not isinstance(document, dict):
        raise TemplateError("is no object; it must be the job of a trial")
    job: Json = document
    return job


class _TemplateLoader(yaml.SafeLoader):
    """Reads YAML without aliases: a few lines of them stand for more than fits into memory."""

    placeholders: list[str]

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return the next node; an alias is an error."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases (*name) are not allowed")
        return super().compose_node(parent, index)

    def text_of(self, node: yaml.ScalarNode) -> str:
        """Return the text of a scalar, with its placeholders."""
        text = _TOKEN.sub(lambda match: self.placeholders[int(match[1])], node.value)
        is_plain = node.style is None and _TOKEN.fullmatch(node.value) is not None
        return PLAIN + text if is_plain else text


_TemplateLoader.add_constructor("tag:yaml.org,2002:str", _TemplateLoader.text_of)
_TemplateLoader.add_constructor(  # times stay as they are written: they have no form in JSON
    "tag:yaml.org,2002:timestamp", _TemplateLoader.text_of
)
for _tag in ("binary", "omap", "pairs", "set"):
    _TemplateLoader.yaml_constructors.pop(f"tag:yaml.org,2002:{_tag}", None)


def _check(value: object) -> None:
    """Check that a value has a form in JSON.

    Raises:
        TemplateError: it has none.

    """
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                raise TemplateError(f"has the key {shown(key)}, which is no text; quote it")
            _check(part)
    elif isinstance(value, list):
        for part in value:
            _check(part)
    elif isinstance(value, int | float) and not abs(value) < _LARGEST:
        raise TemplateError(f"has the number {shown(value)}; it must be below 2^63")


def _loader(text: str, placeholders: list[str]) -> _TemplateLoader:
    loader = _TemplateLoader(text)
    loader.placeholders = placeholders
    return loader


def _reason(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f" in line {mark.line + 1}" if mark is not None else ""
    return f"{shown(getattr(error, 'problem', None) or str(error))[1:-1]}{where}"
