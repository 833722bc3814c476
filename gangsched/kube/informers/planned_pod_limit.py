"""The limit of pods of one namespace that are planned before they exist.

A role with a template is planned before its pods exist. So a few bytes of a user become as many
members in the scheduler's memory as the role counts. No ResourceQuota on objects limits them.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field

from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId
from gangsched.kube.decoding.quantities import DecodeError

_AGAIN = 100
"""Rejected groups that are read again when a group is gone."""


@dataclass(slots=True)
class PlannedPodLimit:
    """Counts, by namespace, the pods that are planned before they exist, up to `most`."""

    most: int
    _pods: dict[str, tuple[str, int]] = field(default_factory=dict)
    _totals: dict[str, int] = field(default_factory=dict)
    _held: dict[str, dict[str, Callable[[], None]]] = field(default_factory=dict)

    def admit(
        self, uid: str, gang: Gang, kind: str, again: Callable[[], None], *, runs: bool
    ) -> None:
        """Count the pods of a gang, which an object of `kind` declares.

        A gang that `runs` is never rejected.

        Raises:
            DecodeError: the namespace has too many planned pods; `again` is called after a release.

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
        """Return whether the pods of a gang are counted, or were rejected."""
        return gang in self._pods or gang in self._held.get(gang.partition("/")[0], {})

    def release(self, uid: str) -> list[Callable[[], None]]:
        """Forget a deleted gang; return calls that retry the rejected groups of its namespace."""
        for held in self._held.values():  # few: namespaces that ever had too many planned pods
            held.pop(uid, None)
        namespace, pods = self._pods.pop(uid, ("", 0))
        if not pods:
            return []
        self._totals[namespace] -= pods
        return list(itertools.islice(self._held.get(namespace, {}).values(), _AGAIN))
