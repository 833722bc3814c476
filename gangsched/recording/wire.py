"""Values of the core as JSON values, under the field names of the journal's form.

msgspec encodes the fields of a dataclass by their names and cannot rename them. So fields that have
a newer name in the code (`gangsched.core.model.wire_names`) are renamed here, both ways.
"""

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from gangsched.core import facts as f
from gangsched.core.engine.limits import Limits
from gangsched.core.facts import HistoryRestored, PodSeen
from gangsched.core.model import wire_names
from gangsched.core.model.gangs import Gang
from gangsched.core.model.nodes import Node
from gangsched.core.model.queues import Queue

T = TypeVar("T")
Convert = Callable[[Any], Any]

FIELDS: Mapping[type, Mapping[str, str]] = {
    **wire_names.FIELDS,
    f.HistoryRestored: {
        "attained_service_s": "attained_s",
        "backoff_until_s": "not_before_s",
        "created_s": "since_s",
        "excluded_nodes": "avoid",
        "failure_message": "given_up",
        "pods_per_node_max": "most_per_node",
        "pods_per_node_until_s": "most_until_s",
        "reserved_nodes": "promised",
        "reserved_start_s": "promised_s",
        "waits_for_capacity": "held_back",
    },
    f.PodSeen: {"gated_by": "held_by"},
    f.UsageRestored: {"historical_gpu_s": "decayed"},
    Limits: {
        "advice_ttl_s": "advice_s",
        "node_exclusion_s": "avoid_s",
        "report_interval_s": "patrol_s",
        "retry_interval_s": "replan_s",
        "schedule_timeout_s": "barrier_s",
    },
}
"""Wire names of fields by class and present name."""


ADDED: Mapping[type, Mapping[str, Any]] = {
    Gang: {
        "checkpoint_grace_s": None,
        "dependencies": (),
        "series": None,
        "price_max": None,
        "wait_max_s": None,
    },
    HistoryRestored: {
        "stop_since_s": None,
        "stop_by_s": None,
        "stop_for": "",
        "stop_cause": "",
    },
    Limits: {"checkpoint_grace_max_s": 600.0},
    Node: {"stop_by_s": None, "price": None},
    PodSeen: {"checkpoint_s": None, "stop_by_s": None},
    Queue: {"price_max": None},
}
"""Fields that came after the form v1 and are not written with these values, their defaults."""

_NOTHING: Mapping[str, Any] = {}
_WRITTEN = object()


def to_wire(value: Any) -> Any:
    """Return a value as JSON values: without derived fields, and with sets in order."""
    if is_dataclass(value):
        cls: Any = type(value)
        left_out = ADDED.get(cls, _NOTHING)
        return {
            wire: to_wire(part)
            for name, wire in _names(cls)
            if (part := getattr(value, name)) != left_out.get(name, _WRITTEN)
        }
    if isinstance(value, Mapping):
        return {key: to_wire(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [to_wire(part) for part in value]
    if isinstance(value, frozenset | set):
        return sorted(to_wire(part) for part in value)
    return value.value if isinstance(value, Enum) else value


def from_wire(data: Any, kind: type[T]) -> T:
    """Return the value of a type that `to_wire` wrote.

    Raises:
        msgspec.ValidationError: the data is not of that type.

    """
    wanted: Any = kind
    rename = _renaming(wanted)
    return msgspec.convert(data if rename is None else rename(data), kind)


@cache
def _names(cls: Any) -> tuple[tuple[str, str], ...]:
    """Return the present name and the wire name of each field."""
    wire = FIELDS.get(cls, {})
    names = (field.name for field in fields(cls))
    return tuple((name, wire.get(name, name)) for name in names if not name.startswith("_"))


@cache
def _renaming(kind: Any) -> Convert | None:
    """Return the conversion of a type's JSON values to present names; None if there is none."""
    return _renaming_of(inspect.type_info(kind))


def _renaming_of(info: inspect.Type) -> Convert | None:
    match info:
        case inspect.DataclassType(cls=cls, fields=parts):
            present = {wire: name for name, wire in _names(cls) if wire != name}
            inner = {part.name: rename for part in parts if (rename := _renaming_of(part.type))}
            return _on_object(present, inner) if present or inner else None
        case inspect.DictType(value_type=item_type):
            value = _renaming_of(item_type)
            return value and _on_mapping(value)
        case (
            inspect.ListType(item_type=item_type)
            | inspect.VarTupleType(item_type=item_type)
            | inspect.FrozenSetType(item_type=item_type)
        ):
            item = _renaming_of(item_type)
            return item and _on_list(item)
        case inspect.UnionType(types=types):
            renamings = [renaming for part in types if (renaming := _renaming_of(part))]
            assert len(renamings) <= 1, "no field of a fact has two classes"  # noqa: S101
            return renamings[0] if renamings else None
    return None


def _on_object(present: Mapping[str, str], inner: Mapping[str, Convert]) -> Convert:
    def rename(data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        named = {present.get(key, key): value for key, value in data.items()}
        return {key: inner[key](value) if key in inner else value for key, value in named.items()}

    return rename


def _on_mapping(rename: Convert) -> Convert:
    return lambda data: (
        {key: rename(value) for key, value in data.items()} if isinstance(data, dict) else data
    )


def _on_list(rename: Convert) -> Convert:
    return lambda data: [rename(value) for value in data] if isinstance(data, list) else data
