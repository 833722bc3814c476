"""Turns of namespaces to have nodes looked for: none takes the time of all others."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gangsched.kube.provisioning.demand import GangDemand


@dataclass(slots=True)
class NamespaceTurns:
    """Takes the first gang of each namespace, those first that waited longest for a turn."""

    _last: dict[str, int] = field(default_factory=dict)
    """The number of the last turn of each namespace."""
    _count: int = 0

    def take(self, lacking: Sequence[GangDemand], turns_max: int) -> list[GangDemand]:
        """Return the gangs with the next turns; `lacking` are in the order of their queues."""
        first: dict[str, GangDemand] = {}
        for want in lacking:
            first.setdefault(want.gang.partition("/")[0], want)
        self._last = {name: at for name, at in self._last.items() if name in first}
        chosen = sorted(first, key=lambda name: self._last.get(name, 0))[:turns_max]
        for name in chosen:
            self._count += 1
            self._last[name] = self._count
        return [first[name] for name in chosen]
