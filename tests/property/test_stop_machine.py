"""The state machine over the engine, with gangs that save their work before they are stopped."""

from dataclasses import replace

from builders import node, templated
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, precondition, rule
from test_engine_machine import GPUS, INDEX, EngineMachine, needs

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import State
from gangsched.core.model.ids import PodUid
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack

POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())


class StopMachine(EngineMachine):
    """Gangs of two priorities preempt each other, and nodes are announced to stop."""

    def __init__(self) -> None:
        self.notices: dict[str, o.AnnounceStop] = {}
        self.saved_s: dict[str, float] = {}
        super().__init__()

    # -- the world's moves --------------------------------------------------------------------

    @rule(size=st.integers(1, 4), gpus=st.integers(1, 4), asks=st.booleans(), urgent=st.booleans())
    def a_gang_of_some_priority_comes(self, size, gpus, asks, urgent):
        name = f"g{len(self.gangs) + 1000 * len(self.told)}"
        self.gangs[name] = size
        more = {"priority": 9 if urgent else 0, "checkpoint_grace_s": 15.0 if asks else None}
        self.tell(
            f.GangSeen(templated(name, size, needs(gpus), created_s=self.now_s + 1.0, **more))
        )

    @rule()
    def a_plan_is_made(self):
        snapshot = self.engine.begin_cycle(now_s=self.now_s)
        self.plans.append(make_plan(snapshot, POLICIES, self.now_s))

    @rule()
    def everything_goes_well(self):
        """Plan, and answer every order, so that gangs run."""
        for _ in range(3):
            plan = make_plan(self.engine.begin_cycle(now_s=self.now_s), POLICIES, self.now_s)
            self.execute(self.engine.accept(plan, self.now_s))
            for _ in range(len(self.asked)):
                order = self.asked[0]
                if isinstance(order, o.Evict):
                    self.asked.append(self.asked.pop(0))
                else:
                    self.an_order_is_answered(0, works=True)

    @precondition(lambda self: self.where)
    @rule(index=INDEX, late=st.booleans())
    def a_pod_reports_a_checkpoint(self, index, late):
        uid = sorted(self.where)[index % len(self.where)]
        known = self.engine.view.pod(PodUid(uid))
        if known is not None and known.gang is not None:
            at_s = self.now_s - (10.0 if late else 0.0)
            self.saved_s[known.gang] = max(at_s, self.saved_s.get(known.gang, at_s))
            self.tell(replace(known, node=self.where[uid], checkpoint_s=at_s))

    @precondition(lambda self: self.there)
    @rule(index=INDEX, seconds=st.floats(0.0, 30.0))
    def a_node_is_announced_to_stop(self, index, seconds):
        name = sorted(self.there)[index % len(self.there)]
        stops = node(name, GPUS, unschedulable=True, stop_by_s=self.now_s + seconds)
        self.tell(f.NodeSeen(stops))

    @precondition(lambda self: self.there)
    @rule(index=INDEX)
    def a_node_stays_after_all(self, index):
        self.tell(f.NodeSeen(node(sorted(self.there)[index % len(self.there)], GPUS)))

    # -- what must hold -----------------------------------------------------------------------

    def execute(self, orders):
        for order in orders:
            match order:
                case o.AnnounceStop():
                    self.notices.setdefault(order.gang, order)
                case o.WithdrawStop() if order.pods:
                    self.notices.pop(order.gang, None)
                case o.Preempt() | o.Drain():
                    self.was_asked(order)
        super().execute(orders)

    def was_asked(self, order) -> None:
        """Check that a gang that asks for time had it, or answered, or lost a member."""
        state = self.engine.view.gangs[order.gang]
        notice = self.notices.pop(order.gang, None)
        if state.spec.checkpoint_grace_s is None or getattr(order, "pods", ()):
            return
        assert notice is not None, f"{order.gang} is stopped without a word"
        saved = self.saved_s.get(order.gang, -1.0) >= notice.since_s - 1.0
        members = state.members
        whole = members.ended_count() + sum(
            1 for uid in self.where if self.names[uid].startswith(f"{order.gang[3:]}-")
        ) >= (state.spec.min_member)
        assert saved or self.now_s >= notice.stop_by_s or not whole

    @invariant()
    def whoever_has_a_notice_runs_and_is_waited_for(self):
        for gang, notice in self.engine.parts.stops.gangs():
            assert gang.state is State.PLACED
            assert notice.since_s <= notice.by_s <= notice.since_s + 15.0
            assert gang.next_deadline_s() <= notice.by_s
            assert not gang.is_plannable()
            if notice.drain is None:
                waiting = self.engine.view.gangs[notice.of]
                assert waiting.reservation.waits_for_capacity

    @invariant()
    def a_notice_lasts_no_longer_than_its_deadline(self):
        """Ticks come at once in this world."""
        for _, notice in self.engine.parts.stops.gangs():
            assert self.now_s < notice.by_s


StopMachine.TestCase.settings = settings(
    max_examples=max(settings.default.max_examples // 5, 5), stateful_step_count=25
)
TestStops = StopMachine.TestCase
