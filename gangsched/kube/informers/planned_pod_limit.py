"""What one namespace may ask the scheduler to keep in mind.

A role with a template is planned before its pods exist, or at least kept in memory: a few bytes of
its author's are as many members here as it counts. A quota on objects does not see them.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId
from gangsched.kube.decoding.quantities import DecodeError

_AGAIN = 100
"""Groups that are read again when one is gone."""


@dataclass(slots=True)
class PlannedPodLimit:
    """Counts the pods of groups that are planned before they exist, by namespace, up to `most`."""

    most: int
    _pods: dict[str, tuple[str, int]] = field(default_factory=dict)
    _totals: dict[str, int] = field(default_factory=dict)
    _held: dict[str, dict[str, Callable[[], None]]] = field(default_factory=dict)

    def admit(
        self, uid: str, gang: Gang, kind: str, again: Callable[[], None], *, runs: bool
    ) -> None:
        """Count a gang's pods, of an object of a kind; one that `runs` is never held back.

        Raises:
            DecodeError: its namespace has too many; `again` is called when there may be fewer.

        """
        namespace = gang.id.partition("/")[0]
        pods = sum(role.count for role in gang.roles if role.needs is not None)
        _, before = self._pods.get(uid, (namespace, 0))
        total = self._totals.get(namespace, 0) - before + pods
        if total > self.most and pods > before and not runs:
            self._held.setdefault(namespace, {})[uid] = again
            raise DecodeError(
                f"{kind} {gang.id}: its {pods} pods are planned before they exist, and with "
                f"them namespace {namespace} would have {total} such pods; {self.most} are "
                f"allowed (setting planned_pods_max), so it waits until others are deleted"
            )
        self._held.get(namespace, {}).pop(uid, None)
        self._pods[uid] = namespace, pods
        self._totals[namespace] = total

    def counts(self, gang: GangId) -> bool:
        """Return whether pods of a gang are counted, or wait to be counted."""
        return gang in self._pods or gang in self._held.get(gang.partition("/")[0], {})

    def release(self, uid: str) -> list[Callable[[], None]]:
        """Forget a gang that is gone; return what tries others of its namespace again."""
        for held in self._held.values():  # as many as namespaces that ever had too many
            held.pop(uid, None)
        namespace, pods = self._pods.pop(uid, ("", 0))
        if not pods:
            return []
        self._totals[namespace] -= pods
        return list(itertools.islice(self._held.get(namespace, {}).values(), _AGAIN))
