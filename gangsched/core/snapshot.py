"""A frozen view to plan on, with what-if: `with snapshot.trial():` undoes usage on exit."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from gangsched.core.cluster import Cluster
from gangsched.core.model import PodNeeds, Waiting


@dataclass(frozen=True)
class Snapshot:
    """The cluster and the waiting gangs at one moment.

    The cluster is a copy: planning may charge it, and `trial` takes such charges back.
    `beyond_is_judged` tells that somebody checks what the planner does not model before a pod
    is bound (kube-scheduler, when it stands between plan and binding).
    """

    cluster: Cluster
    waiting: tuple[Waiting, ...]
    queues: frozenset[str]
    beyond_is_judged: bool = True

    @contextmanager
    def trial(self) -> Iterator["Trial"]:
        """Try placements out; leaving the block restores the usage as it was."""
        trial = Trial(self.cluster)
        try:
            yield trial
        finally:
            trial.undo()


class Trial:
    """A list of charges that can be taken back in one go."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._taken: list[tuple[int, PodNeeds, int]] = []

    def take(self, row: int, needs: PodNeeds, times: int = 1) -> None:
        """Charge the row, to be undone at the end of the trial."""
        self._cluster.take(row, needs, times)
        self._taken.append((row, needs, times))

    def undo(self) -> None:
        """Give everything back, last first."""
        while self._taken:
            self._cluster.give(*self._taken.pop())
