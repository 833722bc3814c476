"""The parts that the steps of Experiments and Trials share: the new status."""

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
        """Set a condition to True, unless it is True."""
        if not conditions.is_true(self.status, kind):
            conditions.put(self.status, kind, reason, message, self.clock.now)

    def finish(self) -> Steps:
        """Return the actions, with the status if it changed."""
        if self.status != self.before:
            self.result.status = self.status
        return self.result
