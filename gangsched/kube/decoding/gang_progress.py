"""Where a gang stands, for what writes the status of others' groups."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


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
        """Tell whether every pod there was has ended."""
        running, succeeded, failed = self.pods
        return not running and succeeded + failed > 0
