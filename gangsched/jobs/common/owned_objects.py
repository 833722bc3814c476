"""Owners whose parts are objects of any kind: what their reconcile reads and returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from gangsched.core.bounds import DOCUMENTS_A_STEP
from gangsched.jobs.common.model import Intent, JobEvent, Json

Ref = tuple[str, str]
"""Kind and name of a part; parts live in their owner's namespace."""


@dataclass(frozen=True, slots=True)
class Owned:
    """An owner and its parts; `seen` holds the results of further look-ups."""

    body: Json
    parts: Mapping[Ref, Json]
    lookups: Json = field(default_factory=dict)

    @property
    def namespace(self) -> str:
        """Return where it lives."""
        return str(self.body["metadata"]["namespace"])

    @property
    def name(self) -> str:
        """Return its name."""
        return str(self.body["metadata"]["name"])

    @property
    def uid(self) -> str:
        """Return its uid: objects of one name differ in it."""
        return str(self.body["metadata"]["uid"])

    def of(self, kind: str) -> list[Json]:
        """Return the parts of a kind, by name."""
        return [body for (kind_, _), body in sorted(self.parts.items()) if kind_ == kind]


@dataclass(slots=True)
class Steps:
    """The actions of one step, in the order of the fields; `status` None means unchanged.

    Nothing is created unless all `intents` can be. `unowned` objects are created without an
    owner reference: they outlive the owner.
    """

    status: Json | None = None
    events: list[JobEvent] = field(default_factory=list)
    delete: list[Ref] = field(default_factory=list)
    intents: list[Intent] = field(default_factory=list)
    create: list[Json] = field(default_factory=list)
    unowned: list[Json] = field(default_factory=list)
    patch: list[tuple[Ref, Json]] = field(default_factory=list)
    delete_owner: bool = False
    requeue_in_s: float | None = None

    def requeue_in(self, in_s: float) -> None:
        """Request another step within so many seconds."""
        known = self.requeue_in_s
        self.requeue_in_s = max(min(in_s, known if known is not None else in_s), 0.0)

    def within_limits(self) -> "Steps":
        """Return these steps, cut to what one step may do; the next step does the rest."""
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
    listed = (body.get("status") or {}).get("conditions") or []
    found = (one for one in listed if one["type"] == kind and one["status"] == "True")
    return next(found, None)


def set_condition(
    status: Json, kind: str, reason: str, message: str, now: str, *, true: bool = True
) -> bool:
    """Set a condition as metav1.Condition has it; return whether its truth changed.

    One that never was True is not written as False.
    """
    value = "True" if true else "False"
    listed = status.get("conditions") or []
    known = next((one for one in listed if one["type"] == kind), None)
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
    status["conditions"] = [new if one is known else one for one in listed]
    if known is None:
        status["conditions"].append(new)
    return True
