"""Pods that are created after their gang runs: capacity for all, a start without them."""

import pytest
from builders import an_engine, needs, node, plan, pod

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.bounds import LATE_PODS_S
from gangsched.core.engine.engine import State
from gangsched.core.engine.gangs.late_pods import CHUNK
from gangsched.core.model.constraints import Constraints, LevelRequest, SliceRequest, Spread
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId, PodUid
from gangsched.core.model.pods import Toleration
from gangsched.core.model.topology import Level, Topology

ID = GangId("ns/lws:g-0")


def led(size: int = 4, gpus: int = 1, **more) -> Gang:
    """Return a gang of a leader and its followers, which are made once the leader runs."""
    role = Role("", size, size, needs(gpus), late=size - 1)
    return Gang(ID, size, (role,), schedule_timeout_s=30.0, **more)


class World:
    """An engine with a gang, and what answers its orders."""

    def __init__(self, gang: Gang, *nodes) -> None:
        self.engine = an_engine(*nodes)
        self.orders: list[o.Order] = []
        self.now_s = 0.0
        self.see(f.GangSeen(gang))

    @property
    def gang(self):
        return self.engine.view.gangs[ID]

    def see(self, fact) -> tuple[o.Order, ...]:
        return self._do(self.engine.observe(fact, self.now_s))

    def comes(self, name: str, gpus: int = 1, **more) -> None:
        self.see(pod(name, "lws:g-0", needs(gpus), **more))

    def plan(self) -> None:
        self._do(plan(self.engine, self.now_s))

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        self._do(self.engine.tick(self.now_s))

    def _do(self, orders):
        for order in orders:
            self.orders.append(order)
            match order:
                case o.Prepare():
                    self.see(f.Prepared(order.uid, order.node))
                case o.Bind():
                    self.see(f.Bound(order.uid, order.node))
        return orders

    def bound(self) -> list[str]:
        return [m.name for m in self.gang.members.values() if m.bound_node]

    def free(self, name: str) -> int:
        cluster = self.engine.view.cluster
        row, column = cluster.rows[name], cluster.resources.index("nvidia.com/gpu")
        return int(cluster.allocatable[row, column] - cluster.used[row, column])


@pytest.fixture
def world():
    world = World(led(), node("n0", 4))
    world.comes("g-0")
    world.plan()
    return world


def test_a_leader_starts_alone_with_capacity_for_its_followers(world):
    assert world.bound() == ["ns/g-0"]
    assert (world.gang.state, world.free("n0")) == (State.PLACED, 0)


def test_a_leader_does_not_start_without_capacity_for_its_followers():
    world = World(led(), node("n0", 3))
    world.comes("g-0")
    world.plan()
    assert (world.bound(), world.gang.state) == ([], State.PENDING)
    assert "needs 4 pods" in world.engine.view.refusals[ID].message


def test_followers_get_the_capacity_that_was_kept_for_them(world):
    for index in (1, 2, 3):
        world.comes(f"g-0-{index}", rank=index)
    assert len(world.bound()) == 4
    assert (len(world.gang.members), world.free("n0")) == (4, 0)
    assert world.engine.audit(world.now_s) == {}
    assert world.gang.minimum() == 4, "from now on it does not do without them"
    minima = [one.minimum for one in world.orders if isinstance(one, o.Bind)]
    assert minima == [1, 2, 3, 4], "a later process knows how many belong to what runs"


def test_capacity_for_followers_that_do_not_come_is_released(world):
    world.passes(LATE_PODS_S.most - 1)
    assert world.free("n0") == 0
    world.passes(2)
    assert (world.free("n0"), world.gang.state) == (3, State.PLACED)
    world.plan()
    assert world.free("n0") == 3, "room is not kept for them again"
    world.comes("g-0-1")
    world.plan()
    assert len(world.bound()) == 2


def test_a_follower_that_was_there_at_once_comes_to_the_barrier_as_well():
    world = World(led(), node("n0", 4))
    world.comes("g-0")
    world.comes("g-0-1")
    world.plan()
    assert len(world.bound()) == 2
    assert len(world.gang.members) == 4


def test_a_lost_leader_releases_the_capacity_of_its_followers(world):
    world.see(f.PodGone(PodUid("g-0")))
    assert (world.free("n0"), world.gang.state) == (4, State.GATHERING)
    world.comes("g-0", uid="again")
    world.plan()
    assert (world.bound(), world.free("n0")) == (["ns/g-0"], 0)


def test_a_follower_that_is_lost_is_missed(world):
    for index in (1, 2, 3):
        world.comes(f"g-0-{index}")
    world.see(f.PodGone(PodUid("g-0-2")))
    world.passes(31)
    evicted = {one.name for one in world.orders if isinstance(one, o.Evict)}
    assert evicted == {"ns/g-0", "ns/g-0-1", "ns/g-0-3"}
    for name in ("g-0", "g-0-1", "g-0-3"):
        world.see(f.PodGone(PodUid(name)))
    world.comes("g-0", uid="again")
    world.passes(10)
    world.plan()
    assert (world.bound(), world.free("n0")) == (["ns/g-0"], 0), "it starts over, leader first"


@pytest.mark.parametrize("declared_first", [True, False])
def test_a_new_process_finds_a_leader_that_runs(declared_first):
    world = World(led() if declared_first else Gang(ID, 1, implicit=True), node("n0", 4))
    world.comes("g-0", node="n0", minimum=1)
    world.see(f.GangSeen(led()))
    assert world.gang.state is State.PLACED
    world.plan()
    assert world.free("n0") == 0, "there may be no room later"
    for index in (1, 2, 3):
        world.comes(f"g-0-{index}")
    assert len(world.bound()) == 4


@pytest.mark.parametrize("declared_first", [True, False])
def test_a_new_process_finds_all_of_them(declared_first):
    world = World(led() if declared_first else Gang(ID, 1, implicit=True), node("n0", 4))
    for index in (3, 0, 2, 1):
        world.comes(f"g-{index}", node="n0", minimum=index + 1)
    world.see(f.GangSeen(led()))
    assert (world.gang.state, len(world.gang.members), world.free("n0")) == (State.PLACED, 4, 0)
    assert world.gang.minimum() == 4


def test_each_follower_fills_the_place_of_its_rank():
    role = Role("w", 4, 4, needs(), late=2)
    world = World(Gang(ID, 4, (role,)), node("n0", 2), node("n1", 2))
    for job in (0, 1):
        world.comes(f"w-{job}-0", role="w", rank=job * CHUNK)
    world.plan()
    kept = {m.rank: m.assigned_node for m in world.gang.members.values() if m.late}
    world.comes("w-1-1", role="w", rank=CHUNK + 1)
    assert world.gang.members["ns/w-1-1"].bound_node == kept[CHUNK + 1]


@pytest.mark.parametrize("jobs", [("a",), ("a", "b")])
def test_each_job_has_a_domain_though_its_pods_differ_from_their_template(jobs):
    """The API server adds tolerations to pods, and JobSet an affinity to the first of a Job."""
    near = LevelRequest(slices=(SliceRequest("rack", 2),))
    roles = tuple(Role(job, 4, 4, needs(), near, late=2) for job in jobs)
    racks = [node(f"n{index}", 2, labels={"rack": f"r{index}"}) for index in range(2 * len(jobs))]
    spread = Constraints(spread=(Spread("rack", 2),))
    world = World(Gang(ID, 4 * len(jobs), roles, constraints=spread), *racks)
    world.see(f.TopologySeen(Topology("default", (Level("rack", "rack"),))))
    added = needs(
        tolerations=(Toleration("not-ready", "Exists", "", "NoExecute"),),
        unmodelled_constraints=("pod affinity",),
    )
    for job in jobs:
        for index in (0, 1):
            name = f"{job}-{index}-0"
            world.see(pod(name, "lws:g-0", added, role=job, rank=index * CHUNK))
    world.plan()
    first = {m.name: m.bound_node for m in world.gang.members.values() if m.bound_node}
    assert sorted(first.values()) == sorted(one.name for one in racks)
    for member in world.gang.members.values():
        if member.late:
            assert member.assigned_node == first[f"ns/{member.role}-{member.rank // CHUNK}-0"]


def test_a_smaller_declaration_gives_places_up():
    world = World(led(), node("n0", 4))
    world.see(f.GangSeen(led(3)))
    world.comes("g-0")
    world.plan()
    assert (len(world.gang.members), world.free("n0")) == (3, 1)


def test_a_declaration_without_late_pods_has_no_places_for_them():
    world = World(led(), node("n0", 4))
    world.comes("g-0")
    world.see(f.GangSeen(Gang(ID, 1)))
    assert list(world.gang.members) == ["ns/g-0"]
