"""The statuses that leaders write, and which parts must survive a change of leader.

While nothing else happens, only a change of leader could alter the compared fields. Predictions and
advice change with time, and are left out.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gangsched.api.timestamps import rfc3339
from gangsched.core.facts import HistoryRestored
from gangsched.kube.decoding.quantities import parse_timestamp
from gangsched.kube.stored import gang_history

View = dict[str, Any]
"""The compared fields of one object; each key is its name in a sentence."""

_HALF_LIFE_S = 604_800.0
_ROUNDED = 0.01


def compared_group(group: Mapping[str, Any]) -> View:
    """Return the compared fields of a PodGroup."""
    status = group.get("status") or {}
    start = status.get("start") or {}
    scheduled = _scheduled(status)
    assignments = status.get("assignments") or ()
    return {
        "phase": status.get("phase", ""),
        "queue": status.get("queue", ""),
        "places": sorted((assignment["pod"], assignment["node"]) for assignment in assignments),
        "proof": status.get("proof") or "",
        "reason": scheduled.get("reason", ""),
        "wait": (scheduled.get("status", ""), scheduled.get("lastTransitionTime", "")),
        "position": start.get("position"),
        "reservation": start.get("reserved"),
        "basis": start.get("basis", ""),
    }


def queue_view(queue: Mapping[str, Any]) -> View:
    """Return the compared fields of a Queue."""
    status = queue.get("status") or {}
    head = status.get("head") or {}
    return {
        "pending": status.get("pending"),
        "admitted": status.get("admitted"),
        "share": status.get("share"),
        "quotas": status.get("quotas") or [],
        "next": (head.get("gang", ""), head.get("reason", "")),
        "GPU time": {
            (row["user"], row.get("periodSeconds", 0), row.get("period", 0)): (
                parse_timestamp(status.get("asOf") or ""),
                row.get("decayedGpuSeconds", 0.0),
                row.get("gpuSeconds", 0.0),
            )
            for row in status.get("spent") or ()
        },
    }


def compared_pod(pod: Mapping[str, Any]) -> View:
    """Return the compared fields of a pod."""
    return {
        "node": pod.get("spec", {}).get("nodeName", ""),
        "phase": pod.get("status", {}).get("phase", ""),
        "deleted": bool(pod["metadata"].get("deletionTimestamp")),
    }


def past_view(text: str, now_s: float) -> dict[str, View]:
    """Return the compared fields of the stored gang histories; limits that ended are left out.

    Raises:
        ValueError: the text is malformed.

    """
    views: dict[str, View] = {}
    for fact in gang_history.read(text or "{}"):
        if isinstance(fact, HistoryRestored):
            view = _past(fact, now_s)
            if view != _past(HistoryRestored(fact.gang, fact.created_s, fact.declared), now_s):
                views[fact.gang] = view
    return views


def ends_within(text: str, from_s: float, until_s: float) -> bool:
    """Return whether a stored back-off or exclusion ends in a span of time."""
    ends = (
        at_s
        for fact in gang_history.read(text or "{}")
        if isinstance(fact, HistoryRestored)
        for at_s in (
            fact.backoff_until_s,
            fact.pods_per_node_until_s,
            *(until_s for _, until_s in fact.excluded_nodes),
        )
    )
    return any(at_s is not None and from_s < at_s <= until_s for at_s in ends)


def _past(past: HistoryRestored, now_s: float) -> View:
    def later(at_s: float | None) -> float | None:
        return at_s if at_s is not None and at_s > now_s else None

    return {
        "wait": past.created_s,
        "declaration": past.declared,
        "tries": (past.attempts, past.no_shows, past.unready_tries, past.failure_message),
        "work done": past.attained_service_s,
        "back-off": later(past.backoff_until_s),
        "excluded nodes": sorted(
            (node, at_s) for node, at_s in past.excluded_nodes if at_s > now_s
        ),
        "most on a node": past.pods_per_node_max if later(past.pods_per_node_until_s) else None,
        "admitted quota": sorted(past.admitted),
        "vacated places": sorted(past.vacated),
        "assigned places": sorted(past.places),
        "held back": past.waits_for_capacity,
        "reservation": None if past.reserved_start_s is None else rfc3339(past.reserved_start_s),
        "reservation places": sorted(past.reserved_nodes),
    }


def _scheduled(status: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = status.get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == "Scheduled"), {})


def _kept(before: str | None, after: str | None) -> bool:
    """Return whether a backfill reservation is kept: it may only become earlier."""
    return before is None or (
        after is not None and parse_timestamp(after) <= parse_timestamp(before)
    )


def _not_lost(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> bool:
    """Return whether used GPU time is still counted: it decays, and grows."""
    for account, (then_s, decayed, spent) in before.items():
        now_s, decayed_now, spent_now = after.get(account, (then_s, 0.0, 0.0))
        decayed_min = decayed * 0.5 ** (max(now_s - then_s, 0.0) / _HALF_LIFE_S)
        if decayed_now < decayed_min - _ROUNDED or spent_now < spent - _ROUNDED:
            return False
    return True


_ALLOWED: Mapping[str, Callable[[Any, Any], bool]] = {"reservation": _kept, "GPU time": _not_lost}


def differences(name: str, before: View | None, after: View | None) -> Iterator[str]:
    """Yield a sentence for each forbidden change of an object."""
    if before is None or after is None:
        if before != after:
            yield f"{name} {'was added' if before is None else 'is gone'}"
        return
    for field_name, value in before.items():
        allowed = _ALLOWED.get(field_name)
        if not (allowed(value, after[field_name]) if allowed else value == after[field_name]):
            yield f"{field_name} of {name}: {value} before, {after[field_name]} after"


def view_differences(before: Mapping[str, View], after: Mapping[str, View]) -> list[str]:
    """Return every difference between two sets of views, in the order of names."""
    return [
        difference
        for name in sorted(before.keys() | after.keys())
        for difference in differences(name, before.get(name), after.get(name))
    ]


@dataclass(slots=True)
class Reports:
    """Receives the watch on one kind: the current view of each object.

    `name` returns the name of an object in a sentence, "" if it is left out. After `mark`, every
    version of an object is compared with its marked version. `violations` has sentences about what
    no leader may do: a wait restarts only if its Scheduled condition changes.
    """

    view: Callable[[Mapping[str, Any]], View]
    name: Callable[[Mapping[str, Any]], str]
    now: dict[str, View] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    _marked: dict[str, View] | None = None

    def on_update(self, raw: bytes) -> None:
        """Record an object."""
        document = msgspec.json.decode(raw)
        name = self.name(document)
        if not name:
            return
        uid = document["metadata"]["uid"]
        before, view = self.now.get(uid), self.view(document)
        self._names[uid], self.now[uid] = name, view
        if before is not None and "wait" in view:
            self._look_at_wait(name, before["wait"], view["wait"])
        self._compare(uid)

    def on_delete(self, uid: str, raw: bytes | None) -> None:
        """Forget an object."""
        if self.now.pop(uid, None) is not None:
            self._compare(uid)

    def named(self, name: str) -> View:
        """Return the view of the object with a name, empty if there is none."""
        return next((view for other, view in self.by_name() if other == name), {})

    def by_name(self) -> Iterator[tuple[str, View]]:
        """Yield the name and view of each object."""
        return ((self._names[uid], view) for uid, view in self.now.items())

    def mark(self) -> None:
        """Start to compare with the current views."""
        self._marked, self.differences = dict(self.now), []

    def unmark(self) -> list[str]:
        """Stop comparing; return the differences since `mark`."""
        self._marked = None
        return self.differences

    def _compare(self, uid: str) -> None:
        if self._marked is None:
            return
        for difference in differences(self._names[uid], self._marked.get(uid), self.now.get(uid)):
            if difference not in self.differences:
                self.differences.append(difference)

    def _look_at_wait(self, name: str, before: tuple[str, str], after: tuple[str, str]) -> None:
        if before[0] == after[0] and before[1] and before[1] != after[1]:
            change = f"is Scheduled={after[0]} since {after[1]}, and was so since {before[1]}"
            self.violations.append(f"{name} {change}")
