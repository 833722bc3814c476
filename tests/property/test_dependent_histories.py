"""Histories of gangs that wait for each other: what holds at every moment."""

from builders import an_engine, needs, node, plan, pod, templated
from hypothesis import given
from hypothesis import strategies as st

from gangsched.core import facts as f
from gangsched.core.model.dependencies import Dependency, DependencyCondition, Series
from gangsched.core.model.ids import GangId, NodeName, PodUid

COUNT = 6
CONDITIONS = list(DependencyCondition)


class World:
    """An engine, and how each gang ended by what this test did."""

    def __init__(self, edges, series_max: int) -> None:
        self.engine = an_engine(node("n0", 4))
        self.now_s = 0.0
        self.ended: dict[int, str] = {}
        self.started: set[int] = set()
        self.edges = {index: edges.get(index, ()) for index in range(COUNT)}
        self.series_max = series_max
        self.starts: list[int] = []
        for index, dependencies in self.edges.items():
            found = tuple(Dependency(f"g{other}", how) for other, how in dependencies)
            series = Series("s", series_max) if index % 2 else None
            gang = templated(f"g{index}", 1, dependencies=found, series=series)
            self.engine.observe(f.GangSeen(gang), 0.0)

    def state(self, index: int) -> str:
        gang = self.engine.view.gangs.get(GangId(f"ns/g{index}"))
        return gang.state.value if gang is not None and gang.spec is not None else "Gone"

    def plan(self) -> None:
        self.now_s += 15.0
        self.engine.tick(self.now_s)
        plan(self.engine, self.now_s)
        for index in range(COUNT):
            if self.state(index) != "Reserved":
                continue
            self.check_may_start(index)
            uid = f"g{index}-worker-0"
            self.engine.observe(pod(uid, f"g{index}", needs(), role="worker"), self.now_s)
            self.engine.observe(f.Prepared(PodUid(uid), NodeName("n0")), self.now_s)
            self.engine.observe(f.Bound(PodUid(uid), NodeName("n0")), self.now_s)
            assert self.state(index) == "Placed"
            self.starts.append(index)
        self.started.update(self.starts)
        running = [n for n in self.started if n not in self.ended and n % 2]
        assert len(running) <= self.series_max

    def check_may_start(self, index: int) -> None:
        for other, how in self.edges[index]:
            met = {
                DependencyCondition.STARTED: other in self.started or other in self.ended,
                DependencyCondition.ENDED: other in self.ended,
                DependencyCondition.SUCCEEDED: self.ended.get(other) == "ok",
                DependencyCondition.FAILED: self.ended.get(other) == "failed",
            }
            assert met[how], (index, other, how)

    def end(self, index: int, *, failed: bool) -> None:
        if index not in self.started or index in self.ended:
            return
        self.ended[index] = "failed" if failed else "ok"
        more = {"node": NodeName("n0"), "ended": True, "failed": failed, "role": "worker"}
        self.engine.observe(pod(f"g{index}-worker-0", f"g{index}", needs(), **more), self.now_s)
        self.engine.observe(f.GangGone(GangId(f"ns/g{index}")), self.now_s)


edges = st.dictionaries(
    st.integers(0, COUNT - 1),
    st.lists(
        st.tuples(st.integers(0, COUNT - 1), st.sampled_from(CONDITIONS)), max_size=2, unique=True
    ),
)
steps = st.lists(
    st.one_of(st.none(), st.tuples(st.integers(0, COUNT - 1), st.booleans())), max_size=20
)


def played(wanted, series_max, moves):
    """Play a history; return the gangs in the order of their starts."""
    world = World(wanted, series_max)
    for move in moves:
        if move is None:
            world.plan()
        else:
            world.end(move[0], failed=move[1])
    world.plan()
    return world.starts


@given(edges, st.integers(1, 2), steps)
def test_no_gang_starts_before_its_conditions_and_no_series_exceeds_its_limit(
    wanted, series_max, moves
):
    assert played(wanted, series_max, moves) == played(wanted, series_max, moves)
