"""What leaders tell, as watches show it, and what of it must not change when the next one leads.

Only that is compared which nothing but another leader could change while nothing else happens:
predictions and advice move with time, and are left out.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gangsched.api.timestamps import stamp
from gangsched.core.facts import PastSeen
from gangsched.kube.decoding.quantities import seconds
from gangsched.kube.stored import gang_history

View = dict[str, Any]
"""What is compared of one object; each key is the words for it in a sentence."""

_HALF_LIFE_S = 604_800.0
_ROUNDED = 0.01


def group_view(group: Mapping[str, Any]) -> View:
    """Return what is compared of a PodGroup."""
    status = group.get("status") or {}
    start = status.get("start") or {}
    scheduled = _scheduled(status)
    places = status.get("assignments") or ()
    return {
        "phase": status.get("phase", ""),
        "queue": status.get("queue", ""),
        "places": sorted((one["pod"], one["node"]) for one in places),
        "proof": status.get("proof") or "",
        "reason": scheduled.get("reason", ""),
        "wait": (scheduled.get("status", ""), scheduled.get("lastTransitionTime", "")),
        "position": start.get("position"),
        "promise": start.get("reserved"),
        "basis": start.get("basis", ""),
    }


def queue_view(queue: Mapping[str, Any]) -> View:
    """Return what is compared of a Queue."""
    status = queue.get("status") or {}
    head = status.get("head") or {}
    return {
        "pending": status.get("pending"),
        "admitted": status.get("admitted"),
        "share": status.get("share"),
        "quotas": status.get("quotas") or [],
        "next": (head.get("gang", ""), head.get("reason", "")),
        "GPU time": {
            (one["user"], one.get("periodSeconds", 0), one.get("period", 0)): (
                seconds(status.get("asOf") or ""),
                one.get("decayedGpuSeconds", 0.0),
                one.get("gpuSeconds", 0.0),
            )
            for one in status.get("spent") or ()
        },
    }


def pod_view(pod: Mapping[str, Any]) -> View:
    """Return what is compared of a pod."""
    return {
        "node": pod.get("spec", {}).get("nodeName", ""),
        "phase": pod.get("status", {}).get("phase", ""),
        "stopped": bool(pod["metadata"].get("deletionTimestamp")),
    }


def past_view(text: str, now_s: float) -> dict[str, View]:
    """Return what is compared of what is kept of gangs' pasts, by gang; what ended means nothing.

    Raises:
        ValueError: nobody could read it.

    """
    found: dict[str, View] = {}
    for one in gang_history.read(text or "{}"):
        if isinstance(one, PastSeen):
            view = _past(one, now_s)
            if view != _past(PastSeen(one.gang, one.since_s, one.declared), now_s):
                found[one.gang] = view
    return found


def ends_within(text: str, from_s: float, until_s: float) -> bool:
    """Tell whether a back-off or an exclusion of what is kept ends in a span of time."""
    limits = (
        at_s
        for one in gang_history.read(text or "{}")
        if isinstance(one, PastSeen)
        for at_s in (one.not_before_s, one.most_until_s, *(until_s for _, until_s in one.avoid))
    )
    return any(at_s is not None and from_s < at_s <= until_s for at_s in limits)


def _past(one: PastSeen, now_s: float) -> View:
    def later(at_s: float | None) -> float | None:
        return at_s if at_s is not None and at_s > now_s else None

    return {
        "wait": one.since_s,
        "declaration": one.declared,
        "tries": (one.attempts, one.no_shows, one.unready_tries, one.given_up),
        "work done": one.attained_s,
        "back-off": later(one.not_before_s),
        "excluded nodes": sorted((node, at_s) for node, at_s in one.avoid if at_s > now_s),
        "most on a node": one.most_per_node if later(one.most_until_s) else None,
        "admitted quota": sorted(one.admitted),
        "vacated places": sorted(one.vacated),
        "reserved places": sorted(one.places),
        "held back": one.held_back,
        "promise": None if one.promised_s is None else stamp(one.promised_s),
        "promised places": sorted(one.promised),
    }


def _scheduled(status: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = status.get("conditions") or ()
    return next((one for one in conditions if one.get("type") == "Scheduled"), {})


def _kept(before: str | None, after: str | None) -> bool:
    """Tell whether a promise is kept: it may become an earlier one."""
    return before is None or (after is not None and seconds(after) <= seconds(before))


def _not_lost(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> bool:
    """Tell whether GPU time that was spent is still known: it decays, and grows."""
    for account, (then_s, decayed, spent) in before.items():
        now_s, still, in_all = after.get(account, (then_s, 0.0, 0.0))
        least = decayed * 0.5 ** (max(now_s - then_s, 0.0) / _HALF_LIFE_S)
        if still < least - _ROUNDED or in_all < spent - _ROUNDED:
            return False
    return True


_ALLOWED: Mapping[str, Callable[[Any, Any], bool]] = {"promise": _kept, "GPU time": _not_lost}


def differences(name: str, before: View | None, after: View | None) -> Iterator[str]:
    """Return what must not have become of an object, a sentence each."""
    if before is None or after is None:
        if before != after:
            yield f"{name} {'came' if before is None else 'is gone'}"
        return
    for what, was in before.items():
        allowed = _ALLOWED.get(what)
        if not (allowed(was, after[what]) if allowed else was == after[what]):
            yield f"{what} of {name}: {was} before, {after[what]} after"


def compared(before: Mapping[str, View], after: Mapping[str, View]) -> list[str]:
    """Return every difference between two looks at what is kept, by name."""
    return [
        one
        for name in sorted(before.keys() | after.keys())
        for one in differences(name, before.get(name), after.get(name))
    ]


@dataclass(slots=True)
class Told:
    """A receiver of a watch on one kind: the objects of a namespace as they are told now.

    `name` is what one object is called in a sentence, "" where it does not count. From `mark` on
    every version of every object is compared with the one that was marked, not the last alone.
    `violations` are sentences of what must never be, whoever leads: a wait begins anew only where
    what is said of it changes.
    """

    view: Callable[[Mapping[str, Any]], View]
    name: Callable[[Mapping[str, Any]], str]
    now: dict[str, View] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    _names: dict[str, str] = field(default_factory=dict)
    _marked: dict[str, View] | None = None

    def seen(self, raw: bytes) -> None:
        """Take an object."""
        one = msgspec.json.decode(raw)
        name = self.name(one)
        if not name:
            return
        uid = one["metadata"]["uid"]
        before, view = self.now.get(uid), self.view(one)
        self._names[uid], self.now[uid] = name, view
        if before is not None and "wait" in view:
            self._look_at_wait(name, before["wait"], view["wait"])
        self._compare(uid)

    def gone(self, uid: str, raw: bytes | None) -> None:
        """Forget an object."""
        if self.now.pop(uid, None) is not None:
            self._compare(uid)

    def named(self, name: str) -> View:
        """Return what is told of the object of a name, nothing where there is none."""
        return next((view for other, view in self.by_name() if other == name), {})

    def by_name(self) -> Iterator[tuple[str, View]]:
        """Yield what is told, object by object."""
        return ((self._names[uid], view) for uid, view in self.now.items())

    def mark(self) -> None:
        """Compare from now on with what is told now."""
        self._marked, self.found = dict(self.now), []

    def unmark(self) -> list[str]:
        """Compare no more; return the differences since `mark`."""
        self._marked = None
        return self.found

    def _compare(self, uid: str) -> None:
        if self._marked is None:
            return
        for one in differences(self._names[uid], self._marked.get(uid), self.now.get(uid)):
            if one not in self.found:
                self.found.append(one)

    def _look_at_wait(self, name: str, before: tuple[str, str], after: tuple[str, str]) -> None:
        if before[0] == after[0] and before[1] and before[1] != after[1]:
            said = f"is Scheduled={after[0]} since {after[1]}, and was so since {before[1]}"
            self.violations.append(f"{name} {said}")
