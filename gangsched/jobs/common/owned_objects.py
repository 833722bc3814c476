"""The input and output of the reconcile of owners with parts of any kind."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gangsched.core.bounds import DOCUMENTS_A_STEP
from gangsched.jobs.common.model import Intent, JobEvent, Json

Ref = tuple[str, str]
"""Kind and name of a part; parts live in their owner's namespace."""


@dataclass(frozen=True, slots=True)
class Owned:
    """An owner and its parts; `lookups` has the results of further look-ups."""

    body: Json
    parts: Mapping[Ref, Json]
    lookups: Json = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """Return the owner's namespace."""
        return str(self.body["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """Return the owner's name."""
        return str(self.body["metadata"]["name"])

    @property
    def uid(self) -> str:
        """Return the owner's uid, which distinguishes it from another object of its name."""
        return str(self.body["metadata"]["uid"])

    def of(self, kind: str) -> list[Json]:
        """Return the parts of a kind, in the order of their names."""
        return [body for ref, body in sorted(self.parts.items()) if ref[0] == kind]


@dataclass(slots=True)
class Steps:
    """The actions of one step, in the order of the fields; `status` None means unchanged.

    No object is created unless all `intents` can be created. `unowned` objects are created
    without an owner reference: they outlive the owner. `companions` are parts that the owner does
    not need: their kind may not exist, and their name may be taken.
    """

    status: Json | None = None
    events: list[JobEvent] = field(default_factory=list)
    delete: list[Ref] = field(default_factory=list)
    intents: list[Intent] = field(default_factory=list)
    create: list[Json] = field(default_factory=list)
    unowned: list[Json] = field(default_factory=list)
    patch: list[tuple[Ref, Json]] = field(default_factory=list)
    patch_status: list[tuple[Ref, Json]] = field(default_factory=list)
    companions: list[Json] = field(default_factory=list)
    delete_owner: bool = False
    requeue_in_s: float | None = None

    def requeue_in(self, in_s: float) -> None:
        """Request another step within so many seconds."""
        known = self.requeue_in_s
        self.requeue_in_s = max(min(in_s, known if known is not None else in_s), 0.0)

    def within_limits(self) -> "Steps":
        """Return these actions, cut to the bounds of one step; the next step does the rest."""
        most = DOCUMENTS_A_STEP.most
        if len(self.delete) > most or len(self.patch) > most:
            del self.delete[most:], self.patch[most:]
            self.requeue_in(0.0)
        return self


def is_terminating(body: Json) -> bool:
    """Return whether an object is being deleted."""
    return bool(body["metadata"].get("deletionTimestamp"))


def true_condition(body: Json, kind: str) -> Json | None:
    """Return a condition of an object if it is True."""
    conditions = (body.get("status") or {}).get("conditions") or []
    true = (item for item in conditions if item["type"] == kind and item["status"] == "True")
    return next(true, None)


def set_condition(
    status: Json, kind: str, reason: str, message: str, now: str, *, true: bool = True
) -> bool:
    """Set a condition in the form of metav1.Condition; return whether its status changed.

    A condition that never was True is not written as False.
    """
    value = "True" if true else "False"
    conditions = status.get("conditions") or []
    known = next((item for item in conditions if item["type"] == kind), None)
    if known is not None and known["status"] == value:
        return False
    if known is None and not true:
        return False
    new = {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }
    status["conditions"] = [new if item is known else item for item in conditions]
    if known is None:
        status["conditions"].append(new)
    return True
