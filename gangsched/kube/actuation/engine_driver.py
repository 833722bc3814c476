"""Gives facts and plans to the engine, and passes its orders on."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.gangs import Gang
from gangsched.core.planning.planner import Plan
from gangsched.kube.actuation.dispatcher import Dispatcher
from gangsched.kube.actuation.pod_binding import Observe
from gangsched.kube.client.errors import EngineError
from gangsched.kube.decoding.users import Users
from gangsched.recording.audit_log import AuditLog
from gangsched.recording.gang_recorder import GangRecorder

Dispatch = Callable[[o.Order], None]
"""Starts to carry out an order; the outcome is a fact."""


class EngineDriver:
    """Drives one engine: the only place where its state changes."""

    def __init__(
        self,
        engine: SchedulingEngine,
        users: Users,
        make_dispatcher: Callable[[Observe], Dispatcher],
        *,
        dispatch: Dispatch | None = None,
        audit_log: AuditLog | None,
        recorder: GangRecorder | None = None,
        now_s: Callable[[], float],
        on_fact: Callable[[f.Fact], None] = lambda _: None,
        on_orders: Callable[[], None],
    ) -> None:
        """Take `dispatch`, which carries out orders instead of the dispatcher."""
        self._engine, self._users, self._audit_log = engine, users, audit_log
        self._recorder = recorder
        self._now_s, self._on_fact, self._on_orders = now_s, on_fact, on_orders
        self.dispatcher = make_dispatcher(self.observe)
        self._dispatch = dispatch or self.dispatcher.dispatch
        self._failed: asyncio.Queue[EngineError] = asyncio.Queue()

    def observe(self, fact: f.Fact) -> None:
        """Give a fact to the engine, and carry out the orders that follow.

        Raises:
            EngineError: the engine failed.

        """
        with self._ending_on_failure(type(fact).__name__):
            if self._audit_log is not None:
                self._audit_log.fact(self._engine.view, fact, self._now_s())
            if self._recorder is not None:
                self._recorder.before(fact, self._now_s())
            self._on_fact(fact)
            self.execute(self._engine.observe(fact, self._now_s()))

    def declare(self, gang: Gang) -> None:
        """Give a declared gang to the engine, without its user if users are not known for certain.

        Raises:
            EngineError: the engine failed.

        """
        self.observe(f.GangSeen(gang if self._users.known else replace(gang, user="")))

    def report(self, report: o.Report) -> None:
        """Carry out a report that does not come from the engine."""
        self.execute((report,))

    def accept(self, plan: Plan) -> None:
        """Carry out a plan.

        Raises:
            EngineError: the engine failed.

        """
        with self._ending_on_failure("accept"):
            self.execute(self._engine.accept(plan, self._now_s()))

    def tick(self) -> None:
        """Apply the present time to the engine, and carry out the orders that follow."""
        self.execute(self._engine.tick(self._now_s()))
        if self._recorder is not None:
            self._recorder.tick(self._now_s())

    def execute(self, orders: tuple[o.Order, ...]) -> None:
        """Carry out orders; their outcomes are facts for `observe`."""
        if not orders:
            return
        self._on_orders()
        for order in orders:
            if self._audit_log is not None:
                self._audit_log.order(self._engine.view, order, self._now_s())
            if self._recorder is not None:
                self._recorder.order(order)
            self._dispatch(order)

    async def raise_fatal(self) -> None:
        """Wait for a failure of the engine, and raise it, also if a caller has caught it."""
        raise await self._failed.get()

    @contextmanager
    def _ending_on_failure(self, what: str) -> Iterator[None]:
        try:
            yield
        except EngineError:
            raise
        except Exception as error:
            failure = EngineError(what)
            self._failed.put_nowait(failure)
            raise failure from error
