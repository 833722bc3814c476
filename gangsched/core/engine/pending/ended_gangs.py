"""Gangs that ended a short while ago, so that gangs that depend on them can start."""

from dataclasses import dataclass

from gangsched.core.model.dependencies import Outcome
from gangsched.core.model.ids import GangId

NAMESPACE_MAX = 1000
TOTAL_MAX = 10_000
STORED_MAX = 200
"""Of one namespace: how many outlive a restart."""
AGE_MAX_S = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class EndedGang:
    """How a gang ended, and when."""

    gang: GangId
    outcome: Outcome
    at_s: float


def own_name(gang: GangId) -> tuple[str, str]:
    """Return the namespace of a gang, and the name of the object that declares it."""
    namespace, _, name = gang.partition("/")
    return namespace, name.rpartition(":")[2]


class EndedGangs:
    """The last gangs that ended, by namespace and name; the oldest are forgotten first."""

    def __init__(self) -> None:
        self._ended: dict[str, dict[str, EndedGang]] = {}
        self._count = 0

    def record(self, gang: GangId, outcome: Outcome, at_s: float) -> None:
        """Record how a gang ended; a later record of the same name replaces an earlier one."""
        if gang.partition("/")[2].startswith("pod:"):
            return  # no gang can name a pod
        namespace, name = own_name(gang)
        ended = self._ended.setdefault(namespace, {})
        self._count += name not in ended
        ended.pop(name, None)
        ended[name] = EndedGang(gang, outcome, at_s)
        if len(ended) > NAMESPACE_MAX:
            self._drop_oldest(namespace)
        if self._count > TOTAL_MAX:
            self._drop_oldest(max(self._ended, key=lambda other: (len(self._ended[other]), other)))

    def restore(self, gang: GangId, outcome: Outcome, at_s: float) -> None:
        """Record the end that an earlier process observed, unless a later one is known."""
        namespace, name = own_name(gang)
        if name not in self._ended.get(namespace, {}):
            self.record(gang, outcome, at_s)

    def find(self, namespace: str, name: str, now_s: float) -> EndedGang | None:
        """Return how the last gang of a name ended, if that is known."""
        ended = self._ended.get(namespace, {}).get(name)
        return ended if ended is not None and now_s - ended.at_s <= AGE_MAX_S else None

    def stored(self, now_s: float) -> list[EndedGang]:
        """Return the newest of each namespace, which outlive a restart."""
        return [
            ended
            for one in self._ended.values()
            for ended in list(one.values())[-STORED_MAX:]
            if now_s - ended.at_s <= AGE_MAX_S
        ]

    def _drop_oldest(self, namespace: str) -> None:
        ended = self._ended[namespace]
        del ended[next(iter(ended))]
        self._count -= 1
        if not ended:
            del self._ended[namespace]
