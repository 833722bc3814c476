"""How the job of a trial ended: by the conditions a user gives (GJSON, as Katib has them).

Of GJSON only the syntax of conditions is allowed: names, `[@this]`, comparisons in `#(...)`.
Its modifiers can double their input at every step, and its patterns can take exponential time.
"""

import re
from typing import Any

import gjson

from gangsched.core.bounds import CONDITION_STEPS, EXPRESSION_LETTERS
from gangsched.core.model.text import shown
from gangsched.jobs.common.model import Json

_CONDITION = 'status.conditions.#(type=="{}")#|#(status=="True")#'
_ENDS = {
    "Job": ("Complete", "Failed"),
    "TrainJob": ("Complete", "Failed"),
    "JobSet": ("Completed", "Failed"),
}
"""Conditions that end a job well or badly, for kinds without those of the Training Operator."""

_TRAINING = ("Succeeded", "Failed")
_NAME = r"[A-Za-z0-9_-]+"
_VALUE = r"""(?:"[^"\\]*"|-?[0-9]+(?:\.[0-9]+)?|true|false|null)"""
_STEP = re.compile(
    rf"(?:{_NAME}|\[@this\]|#\({_NAME}(?:\.{_NAME})*\s*(?:==|!=|<=|>=|<|>)\s*{_VALUE}\)#?)(?=[.|]|\Z)"
)
_FORM = (
    'a condition is made of names, [@this] and comparisons such as #(type=="Complete")#, '
    "with '.' or '|' between them"
)


class ConditionError(Exception):
    """A condition that cannot be used; the message names the field."""


def ended(spec: Json, job: Json) -> str:
    """Return `succeeded`, `failed`, or nothing while a trial's job runs.

    Args:
        spec: of the Trial.
        job: as it is now.

    Raises:
        ConditionError: a condition is none.

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
    """Refuse conditions that are none, before there is a job.

    Raises:
        ConditionError: one of them is malformed.

    """
    for field in ("failureCondition", "successCondition"):
        if path := spec.get(field):
            _read(field, path)


def _read(field: str, path: str) -> None:
    """Find what of a condition is not of its form.

    Raises:
        ConditionError: something is not.

    """
    if len(path) > EXPRESSION_LETTERS.most:
        raise ConditionError(
            f"{field} has {len(path)} letters; {EXPRESSION_LETTERS.most} are allowed"
        )
    at, steps = 0, 0
    while at <= len(path):
        found = _STEP.match(path, at)
        if found is None:
            rest = shown(path[at:]) if at < len(path) else "its end"
            raise ConditionError(
                f"{field} is {shown(path)}, which cannot be read from {rest}: {_FORM}"
            )
        at, steps = found.end() + 1, steps + 1
    if steps > CONDITION_STEPS.most:
        raise ConditionError(f"{field} has {steps} steps; {CONDITION_STEPS.most} are allowed")


def _holds(field: str, path: str, job: Json) -> Any:
    _read(field, path)
    try:
        return gjson.get(job, path)
    except gjson.GJSONError:
        return None  # the field does not exist (yet)
