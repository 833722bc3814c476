"""The record of one training job between two steps, beside its parts."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from gangsched.jobs.common.model import JobEvent, Json
from gangsched.jobs.common.owned_objects import Ref, is_terminating
from gangsched.operators.api_objects import has_ended

_ROLES, _LETTERS = 16, 63


@dataclass(slots=True)
class JobRecord:
    """The record that a step needs of earlier steps; `specs` is the field of the replica specs."""

    specs: str
    vanished: list[Json] = field(default_factory=list)
    """Pods that were deleted for a reason that is not known."""

    requested_deletions: set[str] = field(default_factory=set)
    """Uids of pods with a deletion that was requested here and is not observed yet."""

    handled_terminations: frozenset[str] = frozenset()
    """Uids of terminated pods that a step has handled."""

    launcher_checked: bool = False
    """Whether a step has found that no launcher of another operator exists."""

    wait_reason: str = ""
    """Why the gang could not be declared at the last attempt, or empty."""

    documents: dict[tuple[str, str], Json] = field(default_factory=dict)
    """Objects that are not watched, as they were last written, by kind and name."""

    removed_documents: set[tuple[str, str]] = field(default_factory=set)

    edited_templates: tuple[str, ...] = ()
    """Roles with a template that changed since the last step, while old pods existed."""

    def owner_changed(self, before: Json, after: Json, parts: Collection[Ref]) -> None:
        """Record templates that changed while pods exist."""
        old, new = _templates(before, self.specs), _templates(after, self.specs)
        if old.keys() == new.keys() and any(kind == "Pod" for kind, _ in parts):
            changed = (role for role, template in old.items() if template != new[role])
            self.edited_templates = tuple(dict.fromkeys((*self.edited_templates, *changed)))[
                :_ROLES
            ]

    def part_gone(self, kind: str, last: Json) -> None:
        """Record a deleted pod with a termination that no step has handled."""
        if kind != "Pod":
            return
        uid = last["metadata"]["uid"]
        # The API server deletes a pod that has ended without a grace period.
        done = has_ended(last) and not is_terminating(last)
        if (
            uid not in self.requested_deletions
            and uid not in self.handled_terminations
            and not done
        ):
            self.vanished.append(last)
        self.requested_deletions.discard(uid)

    def edits(self) -> list[JobEvent]:
        """Return the Event about templates that changed, once."""
        fields = ", ".join(
            f"spec.{self.specs}.{role[:_LETTERS]}.template" for role in self.edited_templates
        )
        self.edited_templates = ()
        message = (
            f"{fields} changed; existing pods keep the old template, and new pods get the new "
            f"one: suspend and resume the job to replace all pods"
        )
        return [JobEvent("Warning", "TemplateChanged", message)] if fields else []


def _templates(body: Json, specs: str) -> dict[str, Any]:
    """Return the templates of a job by role; a malformed spec has none."""
    given = (body.get("spec") or {}).get(specs)
    if not isinstance(given, dict):
        return {}
    return {
        role: replica_spec.get("template")
        for role, replica_spec in given.items()
        if isinstance(replica_spec, dict)
    }
