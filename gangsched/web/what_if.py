"""What if: the forecast with a change beside the forecast without it, on copies of the engine."""

import pickle
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from gangsched.config import ConfigError
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.ids import GangId
from gangsched.core.planning.forecast import Effort, Prediction, forecast, with_observed_ranges
from gangsched.core.policy import Policies, PolicyError
from gangsched.core.progress import Progress
from gangsched.kube.background.deadlines import Deadline, LateError, LostThreadError
from gangsched.web.model import PageModel

TEXT_LETTERS_MAX = 300
_GRACE_S = 30.0


class WhatIfError(Exception):
    """A change cannot be made or computed; the message is for the viewer."""


@dataclass(frozen=True, slots=True)
class WhatIfChange:
    """Changes to compare with the present; "" changes nothing.

    `quota` is QUEUE:RESOURCE=AMOUNT, `nodes` COUNT:NODE, `priority` NAMESPACE/NAME=NUMBER, `book`
    COUNT:HOURS FROM NOW:HOURS, `order` the name of a queue order policy, and `pool` POOL=COUNT.
    """

    quota: str = ""
    nodes: str = ""
    priority: str = ""
    book: str = ""
    order: str = ""
    pool: str = ""

    def texts(self) -> tuple[str, ...]:
        """Return all changes as they were written."""
        return self.quota, self.nodes, self.priority, self.book, self.order, self.pool

    def __bool__(self) -> bool:
        """Return whether anything changes."""
        return any(self.texts())


MakeChange = Callable[[SchedulingEngine, WhatIfChange, float], Policies]
"""Makes a change in an engine, and returns the policies to plan with.

It raises ConfigError with a sentence if the change is malformed.
"""


@dataclass(frozen=True, slots=True)
class StartChange:
    """When a gang starts without and with a change; None: not within reach of the forecast."""

    gang: str
    queue: str
    before_s: float | None
    after_s: float | None

    @property
    def gained_s(self) -> float:
        """Return how much earlier it starts; endless if it starts only in one of both cases."""
        before, after = (
            float("inf") if at_s is None else at_s for at_s in (self.before_s, self.after_s)
        )
        return 0.0 if before == after else before - after


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """The starts that change, the largest gain first, and how many stay as they are."""

    at_s: float
    changed: tuple[StartChange, ...]
    same: int


def visible_answer(answer: WhatIfAnswer, model: PageModel) -> WhatIfAnswer:
    """Return the answer without gangs that the model of a viewer does not have."""
    changed = tuple(row for row in answer.changed if row.gang in model.gangs)
    pending = sum(row.waits for row in model.gangs.values())
    return replace(answer, changed=changed, same=max(pending - len(changed), 0))


def check_visible(change: WhatIfChange, model: PageModel) -> None:
    """Check that a change names only what a viewer may see.

    Raises:
        WhatIfError: it names something else.

    """
    for text in change.texts():
        if len(text) > TEXT_LETTERS_MAX:
            raise WhatIfError(f"A value of the change has more than {TEXT_LETTERS_MAX} letters.")
    queue = change.quota.partition(":")[0]
    if queue and queue not in {row.name for row in model.queues}:
        raise WhatIfError(f"There is no queue {queue!r}.")
    node = change.nodes.partition(":")[2]
    if node and node not in {row.name for row in model.nodes}:
        raise WhatIfError(f"There is no node {node!r}.")
    pool = change.pool.rpartition("=")[0]
    if pool and pool not in model.pools:
        raise WhatIfError(f"There is no pool {pool!r}.")
    gang = change.priority.rpartition("=")[0]
    if gang and gang not in model.gangs:
        raise WhatIfError(f"There is no gang {gang!r}.")


@dataclass(slots=True)
class StartComparison:
    """Computes answers on copies of an engine, in a thread."""

    engine: SchedulingEngine
    policies: Policies
    make_change: MakeChange
    effort: Effort
    deadline_s: float

    async def answer(self, change: WhatIfChange, now_s: float) -> WhatIfAnswer:
        """Return which starts change.

        Raises:
            WhatIfError: the change is malformed, or the answer takes too long.

        """
        # The event loop owns the engine: a copy is taken here, and read in the thread.
        copy = pickle.dumps(self.engine, pickle.HIGHEST_PROTOCOL)
        progress = Progress()
        work = partial(self._compare, copy, change, now_s, progress)
        try:
            return await Deadline("the forecast", self.deadline_s, _GRACE_S).run(work, progress)
        except ConfigError as error:
            raise WhatIfError(str(error)) from error
        except LateError as error:
            raise WhatIfError("The forecast takes too long.") from error
        except (LostThreadError, PolicyError) as error:
            raise WhatIfError("The forecast cannot be computed.") from error

    def _compare(
        self, copy: bytes, change: WhatIfChange, now_s: float, progress: Progress
    ) -> WhatIfAnswer:
        changed: SchedulingEngine = pickle.loads(copy)  # noqa: S301 -- made above
        policies = self.make_change(changed, change, now_s)
        after = self._predictions(changed, policies, now_s, progress)
        plain: SchedulingEngine = pickle.loads(copy)  # noqa: S301
        before = self._predictions(plain, self.policies, now_s, progress)
        rows = []
        for gang, prediction in before.items():
            then = after.get(gang)
            state = plain.view.gangs[gang]
            queue = state.spec.queue if state.spec is not None else ""
            after_s = then.start_s if then is not None else None
            rows.append(StartChange(str(gang), queue, prediction.start_s, after_s))
        moved = sorted(
            (row for row in rows if abs(row.gained_s) >= 1),
            key=lambda row: (-row.gained_s, row.gang),
        )
        return WhatIfAnswer(now_s, tuple(moved), len(rows) - len(moved))

    def _predictions(
        self, engine: SchedulingEngine, policies: Policies, now_s: float, progress: Progress
    ) -> dict[GangId, Prediction]:
        snapshot = replace(engine.view.snapshot_all(now_s), progress=progress)
        drawn = forecast(snapshot, policies, now_s, self.effort)
        return with_observed_ranges(drawn, engine.history.starts.punctuality(now_s), now_s)
