"""What is known of one training job between two looks at it."""

from dataclasses import dataclass, field
from typing import Any

from gangsched.jobs.common.model import JobEvent, Json

_ROLES, _LETTERS = 16, 63


@dataclass(slots=True)
class JobCache:
    """What the watches know of one job."""

    body: Json | None = None
    pods: dict[str, Json] = field(default_factory=dict)
    services: dict[str, Json] = field(default_factory=dict)
    group: Json | None = None
    said: list[JobEvent] = field(default_factory=list)
    vanished: list[Json] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    heeded: frozenset[str] = frozenset()
    """Uids of pods whose leaving was acted upon."""

    went: set[str] = field(default_factory=set)
    """Uids of parts that went since the last look."""

    own: str = ""
    """Uid of a job that is known to be none of another operator's."""

    doubted: bool = False
    """A part of it went: it may have gone itself, unheard of."""

    held: str = ""
    """Why its gang may not be declared yet, as far as was seen at the last try."""

    documents: dict[tuple[str, str], Json] = field(default_factory=dict)
    """What was last written of objects that are not watched, by kind and name."""

    dropped: set[tuple[str, str]] = field(default_factory=set)

    edited: tuple[str, ...] = ()
    """Templates that changed since the last look, while pods had the old ones."""

    def take(self, body: Json, specs: str) -> None:
        """Take a job's newest state; `specs` is the field that holds its replica specs."""
        before, now = _templates(self.body, specs), _templates(body, specs)
        if self.pods and before.keys() == now.keys():
            changed = (key[1] for key, one in before.items() if one != now[key])
            self.edited = tuple(dict.fromkeys((*self.edited, *changed)))[:_ROLES]
        self.body = body

    def edits(self, specs: str) -> list[JobEvent]:
        """Return what has to be said of templates that changed, once."""
        fields = ", ".join(f"spec.{specs}.{role[:_LETTERS]}.template" for role in self.edited)
        self.edited = ()
        message = (
            f"{fields} changed; pods that are there keep the template they were made from, pods "
            f"that are made from now on have the new one: suspend and resume the job to replace all"
        )
        return [JobEvent("Warning", "TemplateChanged", message)] if fields else []


def _templates(body: Json | None, specs: str) -> dict[tuple[str, str], Any]:
    """Return the templates of a job by its uid and their roles; what has no shape has none."""
    given = ((body or {}).get("spec") or {}).get(specs)
    if body is None or not isinstance(given, dict):
        return {}
    uid = body["metadata"]["uid"]
    return {(uid, key): one.get("template") for key, one in given.items() if isinstance(one, dict)}
