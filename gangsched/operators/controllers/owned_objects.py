"""The cache of one owner and its parts: which of several reports about an object counts.

Watches and answers to API calls arrive in any order, and two objects may have one name
after each other:

    same object, two states          the later one counts, by its resourceVersion
    two parts of one name            the later one counts; a deletion counts by the part's uid
    two owners of one name           the one reported last counts, and nothing recorded of the
                                     earlier one applies to it
    answer about a part              does not replace a later state, and does not bring back a
                                     part after its deletion was observed
    part deleted here, as a whole    counts as gone at once; later states of it are ignored
    any part deleted                 the owner may be gone as well, unreported: it is looked up
    neither owner nor parts          the entry is removed: any object may name an owner that does
                                     not exist
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from gangsched.jobs.common.model import JobEvent, Json
from gangsched.jobs.common.owned_objects import Ref
from gangsched.operators.api_objects import is_same_object, latest, merge_response, owner_uid

_EVENTS_KEPT = 64


class Record(Protocol):
    """What one family of kinds records of an owner beside its parts; it ends with the owner."""

    def owner_changed(self, before: Json, after: Json, parts: Collection[Ref]) -> None:
        """Record what changed between two states of the owner."""

    def part_gone(self, kind: str, last: Json) -> None:
        """Record the deletion of a part; `last` is its last known state."""


class NoRecord:
    """Nothing is recorded beside the parts."""

    def owner_changed(self, before: Json, after: Json, parts: Collection[Ref]) -> None:
        """Record nothing."""

    def part_gone(self, kind: str, last: Json) -> None:
        """Record nothing."""


class EmittedEvents:
    """The last Events that were written about one owner."""

    def __init__(self) -> None:
        self._events: list[JobEvent] = []

    def is_news(self, event: JobEvent) -> bool:
        """Record an Event; return whether it was not recorded before."""
        if event.among(self._events):
            return False
        self._events = [*self._events[-_EVENTS_KEPT:], event]
        return True


RecordT = TypeVar("RecordT", bound=Record)


@dataclass(slots=True)
class OwnedObjects(Generic[RecordT]):
    """The last known states of one owner and of what it owns."""

    new_record: Callable[[], RecordT]
    body: Json | None = None
    parts: dict[Ref, Json] = field(default_factory=dict)
    hidden_uids: set[str] = field(default_factory=set)
    """Uids of parts that were deleted here and count as gone before the watch reports it."""

    deleted_uids: set[str] = field(default_factory=set)
    """Uids of parts with deletions that were observed since the current step began."""

    owner_unverified: bool = False
    """A part was deleted since the owner was last looked up: it may be gone, unreported."""

    emitted_events: EmittedEvents = field(default_factory=EmittedEvents)
    record: RecordT = field(init=False)

    def __post_init__(self) -> None:
        """Begin with an empty record."""
        self.record = self.new_record()

    @property
    def is_empty(self) -> bool:
        """Return whether neither the owner nor a part of it is known."""
        return self.body is None and not self.parts

    # -- what the watches report --------------------------------------------------------------

    def owner_seen(self, body: Json) -> None:
        """Record a state of the owner."""
        if self.body is not None and is_same_object(self.body, body):
            body = latest(self.body, body)
            self.record.owner_changed(self.body, body, self.parts)
        elif self.body is not None:
            self._forget_owner()
        self.body = body

    def owner_gone(self, body: Json) -> None:
        """Forget the owner, unless a successor took its name; parts go one by one."""
        if self.body is not None and is_same_object(self.body, body):
            self._forget_owner()

    def part_seen(self, ref: Ref, body: Json) -> None:
        """Record a state of a part."""
        if body["metadata"]["uid"] not in self.hidden_uids:
            known = self.parts.get(ref)
            self.parts[ref] = body if known is None else latest(known, body)

    def part_gone(self, ref: Ref, uid: str) -> None:
        """Record the deletion of a part, unless a successor took its name."""
        known = self.parts.get(ref)
        if known is not None and known["metadata"]["uid"] == uid:
            del self.parts[ref]
            self.record.part_gone(ref[0], known)
        self.hidden_uids.discard(uid)
        self.deleted_uids.add(uid)
        self.owner_unverified = True

    # -- what was done here -------------------------------------------------------------------

    def merge_part_response(self, ref: Ref, answer: Json) -> None:
        """Record what an API call about a part answered."""
        state = merge_response(self.parts.get(ref), answer, self.deleted_uids)
        if state is not None:
            self.parts[ref] = state

    def merge_owner_response(self, answer: Json) -> None:
        """Record what an API call about the owner answered."""
        if self.body is not None and is_same_object(self.body, answer):
            self.body = latest(self.body, answer)

    def hide(self, ref: Ref, uid: str) -> None:
        """Count a part as gone once the API server has accepted its deletion."""
        if uid not in self.deleted_uids:
            self.parts.pop(ref, None)
            self.hidden_uids.add(uid)

    def parts_of(self, uid: str) -> dict[Ref, Json]:
        """Return the parts of the owner with a uid, and none of an earlier owner of the name."""
        return {ref: part for ref, part in self.parts.items() if owner_uid(part) == uid}

    def _forget_owner(self) -> None:
        self.body = None
        self.record = self.new_record()
        self.emitted_events = EmittedEvents()
