"""A gang of the name of a gang that is over, while pods of the former gang still exist."""

import itertools

import pytest
from builders import an_engine, needs, node, plan, pod

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId, NodeName, PodUid

ID, NODE = GangId("ns/j"), NodeName("n0")
NAMES = ("j-master-0", "j-worker-0", "j-worker-1", "j-worker-2")


def declared(created_s: float) -> f.GangSeen:
    roles = (Role("Master", 1, 1, needs(1)), Role("Worker", 3, 3, needs(1)))
    return f.GangSeen(Gang(ID, 4, roles, created_s=created_s))


def seen(name: str, **more) -> f.PodSeen:
    role = "Master" if "master" in name else "Worker"
    return pod(name, "j", needs(1), uid=f"{name}-old", role=role, created_s=2.0, **more)


def old_gang():
    """Return an engine in which the first gang runs."""
    engine = an_engine(node("n0", 8))
    engine.observe(declared(1.0), 1.0)
    plan(engine, 1.0)
    for name in NAMES:
        engine.observe(seen(name), 2.0)
    for name in NAMES:
        uid = PodUid(f"{name}-old")
        engine.observe(f.Prepared(uid, NODE), 2.0)
        engine.observe(f.Bound(uid, NODE), 2.0)
    assert engine.view.gangs[ID].state.value == "Placed"
    return engine


def streams(end: str):
    """Return the facts about the group and about the pods, each in its order."""
    group = [f.GangGone(ID), declared(9.0)]
    last = {"ended": {"ended": True}, "failed": {"ended": True, "failed": True}}
    pods = [
        seen(name, node=NODE, terminating=not last.get(end), **last.get(end, {})) for name in NAMES
    ]
    return group, [*pods, *(f.PodGone(PodUid(f"{name}-old")) for name in NAMES)]


def interleavings():
    """Return after how many facts about pods each fact about the group comes."""
    return list(itertools.combinations_with_replacement(range(9), 2))


@pytest.mark.parametrize("planned_between", [False, True])
@pytest.mark.parametrize("end", ["ended", "failed", "terminating"])
def test_it_is_planned_whole_once_the_old_pods_are_gone(end, planned_between):
    for places in interleavings():
        engine = old_gang()
        group, pods = streams(end)
        orders: list[o.Order] = []
        for at in range(len(pods) + 1):
            for fact, place in zip(group, places, strict=True):
                if place == at:
                    orders += engine.observe(fact, 9.0)
            if at < len(pods):
                orders += engine.observe(pods[at], 9.0)
            if planned_between:
                orders += plan(engine, 9.0)
        for now_s in range(10, 200, 10):
            orders += engine.tick(float(now_s))
            orders += plan(engine, float(now_s))
            if engine.view.gangs[ID].state.value == "Reserved":
                break
        gang = engine.view.gangs[ID]
        assert gang.state.value == "Reserved", (places, gang.state)
        assert [member.assigned_node for member in gang.members.values()] == [NODE] * 4, places
        if end == "terminating":
            continue  # a gang that runs gets lost places back one by one
        reserved = [x for x in orders if isinstance(x, o.Report) and x.reason == "Reserved"]
        assert {x.message for x in reserved} <= {"Capacity for 4 pods is reserved on 1 node."}
