"""How far a gang is, for what writes the status of other schedulers' groups."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import GangId


@dataclass(frozen=True, slots=True)
class GangProgress:
    """Where a gang stands, for what writes its status.

    `state` and `reason` are those of our reports; `pods` are running, succeeded, failed. `before`
    is the status as it was written last, and `now` the moment.
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
