"""Names that journals and checksums keep, where classes and fields have newer ones.

A journal of the form v1 has the field names of its first release, and the checksum of a declaration
(`PastSeen.declared`) is taken of its text with the names of that release.
"""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from gangsched.core.model.constraints import Constraints, LevelRequest, SliceRequest, Spread
from gangsched.core.model.placement import Placement
from gangsched.core.model.pods import GpuShare, PodRequirements
from gangsched.core.model.queues import Queue, Quota

FIELDS: Mapping[type, Mapping[str, str]] = {
    Constraints: {"gpu_types": "gpu_kinds"},
    Placement: {"gpu_type": "gpu_kind"},
    PodRequirements: {"unmodelled_constraints": "beyond"},
    Queue: {"non_preemptible_may_borrow": "firm_loans"},
    Quota: {"gpu_type": "kind"},
    Spread: {"pods_max": "most"},
}
"""Wire names of fields by class and present name."""

_CLASSES: Mapping[type, str] = {
    GpuShare: "Share",
    PodRequirements: "PodNeeds",
    SliceRequest: "Slices",
    LevelRequest: "Near",
}

_UNCHANGED: Mapping[str, str] = {}


def recorded_text(value: Any) -> str:
    """Return `repr(value)` as it was with the wire names of classes and fields."""
    if isinstance(value, tuple):
        parts = [recorded_text(part) for part in value]
        return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
    if not is_dataclass(value):
        return repr(value)
    cls = type(value)
    names = FIELDS.get(cls, _UNCHANGED)
    listed = ", ".join(
        f"{names.get(field.name, field.name)}={recorded_text(getattr(value, field.name))}"
        for field in fields(value)
        if field.repr
    )
    return f"{_CLASSES.get(cls, cls.__qualname__)}({listed})"
