"""The conditions of a kubeflow.org/v1 job: order, replacement, and final conditions.

Running and Restarting replace each other; once a job has Succeeded or Failed, Running stays in
the list with status False; nothing changes after that (training-operator pkg/util/status.go).
"""

from gangsched.jobs.common.model import Json

FINAL = ("Succeeded", "Failed")


def get(status: Json, kind: str) -> Json | None:
    """Return the condition of a type."""
    return next((c for c in status.get("conditions", []) if c["type"] == kind), None)


def is_true(status: Json, kind: str) -> bool:
    """Return whether the condition of a type is True."""
    condition = get(status, kind)
    return condition is not None and condition["status"] == "True"


def is_finished(status: Json) -> bool:
    """Return whether the job has Succeeded or Failed."""
    return any(is_true(status, kind) for kind in FINAL)


def put(status: Json, kind: str, reason: str, message: str, now: str, *, true: bool = True) -> bool:
    """Set a condition; return whether it changed."""
    value = "True" if true else "False"
    current = get(status, kind)
    if current is not None and (current["status"], current["reason"], current["message"]) == (
        value,
        reason,
        message,
    ):
        return False
    same = current is not None and current["status"] == value
    new = {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastUpdateTime": now,
        "lastTransitionTime": current["lastTransitionTime"] if same and current else now,
    }
    replaced = {"Running": "Restarting", "Restarting": "Running"}.get(kind) if true else None
    kept = [c for c in status.get("conditions", []) if c["type"] not in (kind, replaced)]
    if true and kind in (*FINAL, "Suspended"):
        for condition in kept:
            if condition["type"] == "Running" and condition["status"] == "True":
                condition |= {"status": "False", "lastUpdateTime": now, "lastTransitionTime": now}
    status["conditions"] = [*kept, new]
    return True
