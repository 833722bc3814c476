"""The progress of a gang, for the writers of other schedulers' statuses."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import GangId


@dataclass(frozen=True, slots=True)
class GangProgress:
    """The progress of a gang.

    `state` and `reason` are from the engine's last report. `pods` are the numbers of running,
    succeeded and failed pods. `before` is the last written status, and `now` the present time.
    """

    state: str
    reason: str
    message: str
    since: str
    refused: bool
    minimum: int
    pods: tuple[int, int, int]
    before: Mapping[str, Any] = field(default_factory=dict)
    now: str = ""

    @property
    def done(self) -> bool:
        """Return whether all pods have ended."""
        running, succeeded, failed = self.pods
        return not running and succeeded + failed > 0


def pod_counts(view: EngineView, gang_id: GangId) -> tuple[int, tuple[int, int, int]]:
    """Return a gang's minimum, and how many of its pods run, succeeded and failed."""
    gang = view.gangs.get(gang_id)
    if gang is None:
        return 1, (0, 0, 0)
    members = gang.members.values()
    running = sum(member.runs and member.ready for member in members)
    failed = sum(member.ended and member.failed for member in members)
    return gang.minimum(), (running, gang.members.ended_count(), failed)
