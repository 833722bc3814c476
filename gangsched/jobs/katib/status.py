"""What a step of an Experiment and of a Trial share: the status as it becomes."""

import copy

from gangsched.jobs.common import conditions
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import Json
from gangsched.jobs.common.owned_objects import Owned, Steps


class KatibStep:
    """One reconcile in progress; `status` and `result` are filled in."""

    def __init__(self, owned: Owned, clock: Clock) -> None:
        self.owned, self.clock = owned, clock
        self.spec: Json = owned.body["spec"]
        self.before: Json = owned.body.get("status") or {}
        self.status: Json = copy.deepcopy(self.before)
        self.status.setdefault("startTime", clock.now)
        self.result = Steps()

    def set_condition(self, kind: str, reason: str, message: str) -> None:
        """Make a condition true, unless it is."""
        if not conditions.is_true(self.status, kind):
            conditions.put(self.status, kind, reason, message, self.clock.now)

    def finish(self) -> Steps:
        """Return what to do, the status with it if it is another."""
        if self.status != self.before:
            self.result.status = self.status
        return self.result
