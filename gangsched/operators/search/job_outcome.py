"""The outcome of a trial's job, by the user's conditions (GJSON, as in Katib).

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
"""Conditions of success and failure, for kinds that do not have the Training Operator's."""

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


def outcome_of_job(spec: Json, job: Json) -> str:
    """Return `succeeded`, `failed`, or nothing while a trial's job runs.

    Args:
        spec: the Trial's spec.
        job: the job's current state.

    Raises:
        ConditionError: a condition is malformed.

    """
    success, failure = (_CONDITION.format(kind) for kind in _ENDS.get(job["kind"], _TRAINING))
    for outcome, field, default in (
        ("failed", "failureCondition", failure),
        ("succeeded", "successCondition", success),
    ):
        if _holds(field, spec.get(field) or default, job):
            return outcome
    return ""


def check(spec: Json) -> None:
    """Check the conditions of a Trial's spec, before its job is created.

    Raises:
        ConditionError: a condition is malformed.

    """
    for field in ("failureCondition", "successCondition"):
        if path := spec.get(field):
            _read(field, path)


def _read(field: str, path: str) -> None:
    """Check the syntax of a condition.

    Raises:
        ConditionError: the condition is malformed.

    """
    if len(path) > EXPRESSION_LETTERS.most:
        raise ConditionError(
            f"{field} has {len(path)} letters; {EXPRESSION_LETTERS.most} are allowed"
        )
    at, steps = 0, 0
    while at <= len(path):
        match = _STEP.match(path, at)
        if match is None:
            rest = shown(path[at:]) if at < len(path) else "its end"
            raise ConditionError(
                f"{field} is {shown(path)}, which cannot be read from {rest}: {_FORM}"
            )
        at, steps = match.end() + 1, steps + 1
    if steps > CONDITION_STEPS.most:
        raise ConditionError(f"{field} has {steps} steps; {CONDITION_STEPS.most} are allowed")


def _holds(field: str, path: str, job: Json) -> Any:
    _read(field, path)
    try:
        return gjson.get(job, path)
    except gjson.GJSONError:
        return None  # the field does not exist (yet)
