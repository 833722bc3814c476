"""A state machine over the engine: facts in any order, late and repeated answers, stale plans.

The test keeps its own truth (which pod is bound where) and judges by it, never by the engine.
"""

from collections import Counter
from dataclasses import replace

from builders import GPU, POLICIES, an_engine, gang, needs, node, pod, templated
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import State
from gangsched.core.engine.gangs.running_views import running_view, starting_view
from gangsched.core.model.gangs import Role
from gangsched.core.model.ids import PodName, PodUid
from gangsched.core.planning.planner import Plan, make_plan

NODES = ("n0", "n1", "n2")
GPUS = 4
INDEX = st.integers(0, 10_000)


class EngineMachine(RuleBasedStateMachine):
    """Plays the world against the engine."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = an_engine(*(node(name, GPUS) for name in NODES))
        self.now_s = 0.0
        self.gangs: dict[str, int] = {}
        self.names: dict[str, str] = {}  # pod uid -> pod name
        self.where: dict[str, str] = {}  # pod uid -> node, in the world's truth
        self.there = set(NODES)
        self.asked: list[o.Order] = []  # orders not answered yet
        self.told: list[f.Fact] = []
        self.plans: list[Plan] = []
        self.uids = 0
        self.partial_since_s: dict[str, float] = {}
        self.more = 0  # GPUs that pods ask for beyond their role's template

    # -- the world's moves --------------------------------------------------------------------

    @rule(size=st.integers(1, 6), gpus=st.integers(1, 4), first=st.booleans())
    def a_gang_comes(self, size, gpus, first):
        name = f"g{len(self.gangs)}"
        self.gangs[name] = size
        wants = needs(gpus)
        if first:
            self.tell(f.GangSeen(templated(name, size, wants)))
            return
        self.tell(f.GangSeen(gang(name, size)))
        for index in range(size):
            self.make_pod(name, f"{name}-{index}", wants)

    @rule(size=st.integers(2, 6), gpus=st.integers(1, 2), late=st.integers(1, 5))
    def a_gang_comes_whose_last_pods_are_made_once_the_others_run(self, size, gpus, late):
        name = f"g{len(self.gangs)}"
        wants, late = needs(gpus), min(late, size - 1)
        self.gangs[name] = size
        self.tell(f.GangSeen(gang(name, size, roles=(Role("", size, size, wants, late=late),))))
        for index in range(size - late):
            self.make_pod(name, f"{name}-{index}", wants)

    @precondition(lambda self: self.staged())
    @rule(index=INDEX)
    def a_late_pod_comes(self, index):
        name = self.staged()[index % len(self.staged())]
        known = {one for one in self.names.values() if one.startswith(f"{name}-")}
        free = [i for i in range(self.gangs[name]) if f"{name}-{i}" not in known]
        if free:
            wants = self.engine.view.gangs[f"ns/{name}"].spec.roles[0].needs
            self.make_pod(name, f"{name}-{free[0]}", needs(dict(wants.requests)[GPU] + self.more))

    @precondition(lambda self: self.asked)
    @rule(index=INDEX, works=st.booleans())
    def an_order_is_answered(self, index, works):
        order = self.asked.pop(index % len(self.asked))
        uid = str(order.uid)
        if uid not in self.names:
            return
        node_there = getattr(order, "node", "") in self.there
        match order:
            case o.Prepare():
                fact = f.Prepared if works and node_there else f.PrepareFailed
                extra = () if fact is f.Prepared else ("no",)
                self.tell(fact(order.uid, order.node, *extra))
            case o.Bind() if works and node_there:
                self.where[uid] = order.node
                self.tell(f.Bound(order.uid, order.node))
            case o.Bind():
                self.tell(f.BindFailed(order.uid, order.node, "no"))
            case o.Evict():
                self.pod_leaves(uid)

    @rule()
    def a_plan_is_made(self):
        self.plans.append(make_plan(self.engine.begin_cycle(), POLICIES, self.now_s))

    @precondition(lambda self: self.plans)
    @rule(index=INDEX, keep=st.booleans())
    def a_plan_lands(self, index, keep):
        """Plans may land late, and twice."""
        position = index % len(self.plans)
        landed = self.plans[position] if keep else self.plans.pop(position)
        self.execute(self.engine.accept(landed, self.now_s))

    @precondition(lambda self: self.told)
    @rule(index=INDEX)
    def an_answer_comes_again(self, index):
        fact = self.told[index % len(self.told)]
        if isinstance(fact, (f.Prepared, f.PrepareFailed, f.BindFailed, f.GangSeen)):
            self.execute(self.engine.observe(fact, self.now_s))

    @precondition(lambda self: self.where)
    @rule(index=INDEX)
    def the_watch_shows_a_bound_pod(self, index):
        uid = sorted(self.where)[index % len(self.where)]
        known = self.engine.view.pod(PodUid(uid))
        if known is not None:
            group = known.gang[3:]
            self.tell(pod(self.names[uid], group, known.needs, uid=uid, node=self.where[uid]))

    @precondition(lambda self: self.names)
    @rule(index=INDEX)
    def a_pod_is_deleted(self, index):
        self.pod_leaves(sorted(self.names)[index % len(self.names)])

    @rule(more=st.integers(0, 3))
    def pods_come_larger_from_now_on(self, more):
        self.more = more

    @precondition(lambda self: self.names)
    @rule(index=INDEX, gpus=st.integers(1, 4))
    def a_pod_that_waits_asks_for_something_else(self, index, gpus):
        uid = sorted(self.names)[index % len(self.names)]
        binds = {str(one.uid) for one in self.asked if isinstance(one, o.Bind)}
        if uid not in self.where and uid not in binds:
            group = self.engine.view.pod(PodUid(uid)).gang[3:]
            self.tell(pod(self.names[uid], group, needs(gpus), uid=uid))

    @precondition(lambda self: self.names and self.gangs)
    @rule(index=INDEX, other=INDEX)
    def a_pod_is_labelled_anew(self, index, other):
        uid = sorted(self.names)[index % len(self.names)]
        group = sorted(self.gangs)[other % len(self.gangs)]
        known = self.engine.view.pod(PodUid(uid))
        node = self.where.get(uid)
        self.tell(pod(self.names[uid], group, known.needs, uid=uid, node=node))

    @precondition(lambda self: self.there)
    @rule(index=INDEX)
    def a_node_goes(self, index):
        name = sorted(self.there)[index % len(self.there)]
        self.there.discard(name)
        self.tell(f.NodeGone(name))
        for uid in [uid for uid, place in self.where.items() if place == name]:
            self.pod_leaves(uid)

    @precondition(lambda self: len(self.there) < len(NODES))
    @rule()
    def a_node_returns(self):
        name = min(set(NODES) - self.there)
        self.there.add(name)
        self.tell(f.NodeSeen(node(name, GPUS)))

    @precondition(lambda self: self.gangs)
    @rule(index=INDEX)
    def a_group_is_deleted(self, index):
        name = sorted(self.gangs)[index % len(self.gangs)]
        del self.gangs[name]
        self.tell(f.GangGone(f"ns/{name}"))
        for uid, pod_name in list(self.names.items()):
            if pod_name.startswith(f"{name}-"):
                self.pod_leaves(uid)

    @rule(seconds=st.floats(0.1, 40.0))
    def time_passes(self, seconds):
        self.now_s += seconds
        self.execute(self.engine.tick(self.now_s))

    # -- helpers ------------------------------------------------------------------------------

    def tell(self, fact: f.Fact) -> None:
        self.told.append(fact)
        self.execute(self.engine.observe(fact, self.now_s))

    def execute(self, orders: tuple[o.Order, ...]) -> None:
        for order in orders:
            if isinstance(order, o.Reserve):
                self.create_pods(order)
            elif isinstance(order, (o.Prepare, o.Bind, o.Evict)):
                self.asked.append(order)

    def create_pods(self, order: o.Reserve) -> None:
        """Play the job controller of gangs that are planned before their pods exist."""
        state = self.engine.view.gangs[order.gang]
        if state.spec is None or not state.spec.planned_before_creation:
            return
        for name, _ in order.assignments:
            if name[3:] not in self.names.values():
                place = dict(state.members[PodName(name)].needs.requests)
                self.make_pod(order.gang[3:], name[3:], needs(place[GPU] + self.more))

    def staged(self) -> list[str]:
        """Return the gangs some of whose pods come late."""
        declared = {name: self.engine.view.gangs.get(f"ns/{name}") for name in self.gangs}
        return [name for name, one in declared.items() if one and one.spec and one.spec.late]

    def make_pod(self, group: str, name: str, wants) -> None:
        self.uids += 1
        uid = f"u{self.uids:04}"
        self.names[uid] = name
        self.tell(pod(name, group, wants, uid=uid))

    def pod_leaves(self, uid: str) -> None:
        self.names.pop(uid, None)
        self.where.pop(uid, None)
        self.tell(f.PodGone(PodUid(uid)))

    # -- what must hold -----------------------------------------------------------------------

    @invariant()
    def no_node_is_overcommitted(self):
        used = dict.fromkeys(NODES, 0)
        for uid, place in self.where.items():
            used[place] += dict(self.engine.view.pod(PodUid(uid)).needs.requests)[GPU]
        assert all(total <= GPUS for total in used.values()), used

    @invariant()
    def usage_is_the_sum_of_what_is_known(self):
        cluster = self.engine.view.cluster
        total = dict.fromkeys(cluster.rows, 0)
        for charge in cluster.allocations().values():
            place, wants = charge.node, charge.needs
            if place in total:
                total[place] += dict(wants.requests)[GPU]
        column = cluster.resources.index(GPU)
        assert total == {n: int(cluster.used[row, column]) for n, row in cluster.rows.items()}

    @invariant()
    def members_are_counted_right(self):
        for state in self.engine.view.gangs.values():
            members = state.members.values()
            assert state.members.bound_count() == sum(m.runs for m in members)
            assert state.members.ended_count() == sum(m.done for m in members)
            assert state.members.in_progress() == sum(m.stage is not None for m in members)
            assert state.members.to_come() == sum(m.awaits_late_pod for m in members)

    @invariant()
    def who_runs_is_kept_right(self):
        """What is kept from change to change is what looking at every gang would find."""
        declared = [gang for gang in self.engine.view.gangs.values() if gang.spec]
        placed = [gang for gang in declared if gang.state is State.PLACED]
        runs = [running_view(gang) for gang in placed if gang.run.stop is None]
        made = [self.engine.parts.running.estimated(one) for one in runs if one.places]
        found = {one.gang.id: replace(one, estimate=None) for one in self.engine.view.running()}
        assert found == {one.gang.id: replace(one, estimate=None) for one in made}
        comes = [one for gang in declared if (one := starting_view(gang)) is not None]
        made = [self.engine.parts.running.estimated(one) for one in comes if one.places]
        found = {one.gang.id: (one.places, one.charge) for one in self.engine.view.starting()}
        assert found == {one.gang.id: (one.places, one.charge) for one in made}

    @invariant()
    def whoever_takes_room_is_known_to_planners(self):
        """Room that nobody is known to hold would never come free for them."""
        engine = self.engine
        held = [
            (one.gang.id, p)
            for one in (*engine.view.running(), *engine.view.starting())
            for p in one.places
        ]
        held += [(one.gang.id, place) for one in engine.view.terminating() for place in one.places]
        known = Counter((gang, p.name, p.node, p.needs.requests) for gang, p in held)
        charged = Counter()
        for key, charge in engine.view.cluster.allocations().items():
            gang, name = key if isinstance(key, tuple) else self._member_of(key)
            if gang in engine.view.gangs and engine.view.gangs[gang].spec is not None:
                charged[gang, name, charge.node, charge.needs.requests] += 1
        assert known == charged

    def _member_of(self, uid):
        pod = self.engine.view.pod(uid)
        return pod.gang, pod.name

    @invariant()
    def the_next_moment_is_known(self):
        due = (gang.next_deadline_s() for gang in self.engine.view.gangs.values())
        assert self.engine.next_deadline_s() == min(
            (at for at in due if at is not None), default=None
        )

    @invariant()
    def binds_go_out_for_whole_gangs_only(self):
        """While a bind is in flight, every other member is bound or in flight as well."""
        for state in self.engine.view.gangs.values():
            if state.state is State.BINDING:
                members = [m for m in state.members.values() if not m.late]
                assert not any(m.stage and m.stage.before_barrier for m in members)

    @invariant()
    def no_partial_gang_outlives_its_deadline(self):
        for name, size in self.gangs.items():
            count = sum(self.names[uid].startswith(f"{name}-") for uid in self.where)
            if 0 < count < size and name not in self.staged():
                since_s = self.partial_since_s.setdefault(name, self.now_s)
                state = self.engine.view.gangs[f"ns/{name}"]
                waiting_for_world = any(
                    getattr(order, "gang", None) == f"ns/{name}" for order in self.asked
                )
                overdue = self.now_s - since_s > 31.0 + 40.0
                assert not overdue or waiting_for_world or state.next_deadline_s() is not None, name
            else:
                self.partial_since_s.pop(name, None)


EngineMachine.TestCase.settings = settings(
    max_examples=2 * settings.default.max_examples, stateful_step_count=50
)
TestEngine = EngineMachine.TestCase
