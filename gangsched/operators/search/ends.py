"""How the job of a trial ended: by the conditions a user gives (GJSON, as Katib has them)."""

from typing import Any

import gjson

from gangsched.core.jobs.model import Json
from gangsched.core.shown import shown

_CONDITION = 'status.conditions.#(type=="{}")#|#(status=="True")#'
_ENDS = {
    "Job": ("Complete", "Failed"),
    "TrainJob": ("Complete", "Failed"),
    "JobSet": ("Completed", "Failed"),
}
"""Conditions that end a job well or badly; those of the Training Operator have other words."""

_TRAINING = ("Succeeded", "Failed")
_LENGTH = 1000
_PATTERNS = "%*?"
_MALFORMED = (
    "Delimiter at",
    "Empty",
    "Escape character",
    "Expected J",
    "Expected c",
    "Expected d",
    "Failed to parse",
    "Got empty",
    "Invalid",
    "Missing",
    "Modifier with",
    "Unable",
    "Unbalanced",
    "Unknown",
)
"""How the library's words begin where a path is none; else something is not there (yet)."""


class ConditionError(Exception):
    """A condition that cannot be used; the message names the field."""


def ended(spec: Json, job: Json) -> str:
    """Return `succeeded`, `failed`, or nothing while a trial's job runs.

    Args:
        spec: of the Trial.
        job: as it is now.

    Raises:
        ConditionError: a condition is no path.

    """
    well, badly = (_CONDITION.format(word) for word in _ENDS.get(job["kind"], _TRAINING))
    for said, field, usual in (
        ("failed", "failureCondition", badly),
        ("succeeded", "successCondition", well),
    ):
        if _holds(field, spec.get(field) or usual, job):
            return said
    return ""


def check(spec: Json) -> None:
    """Refuse conditions that are no paths, before there is a job.

    Raises:
        ConditionError: one is none.

    """
    ended(spec, {"kind": "Job"})


def _holds(field: str, path: str, job: Json) -> Any:
    where = f"{field} is {shown(path)}"
    if len(path) > _LENGTH:
        raise ConditionError(f"{field} has {len(path)} letters; {_LENGTH} are allowed")
    if found := next((one for one in _PATTERNS if one in path), None):
        # The library matches them with expressions that a short path can make run for ever.
        raise ConditionError(f"{where}; patterns ({', '.join(_PATTERNS)}) are not taken: {found}")
    try:
        return gjson.get(job, path)
    except gjson.GJSONError as error:
        why = str(error.args[0])
        if why.startswith(_MALFORMED):
            raise ConditionError(f"{where}, which is no GJSON path: {why}") from error
        return None
