"""Which gangs PodDisruptionBudgets protect, with few reads."""

import json
from collections import Counter

import pytest
from builders import an_engine, gang, node, pod

from gangsched.core.bounds import BUDGETS, NAMESPACES_READ, PODS_READ
from gangsched.core.facts import BudgetsSeen, GangSeen
from gangsched.core.model.gangs import Gang
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.kube.background.disruption_budgets import (
    _Expression,
    _Selector,
    _selects,
    protected,
    stoppable_protected,
)
from gangsched.kube.client.errors import Unavailable

A, B, C = (GangId(f"ns/{name}") for name in "abc")


def budget(app: str, spared: int) -> dict:
    return {
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"disruptionsAllowed": spared},
    }


class Api:
    """An API server with budgets and pods; it counts what it is asked."""

    def __init__(self, budgets=(), pods=(), more="") -> None:
        self.budgets, self.pods, self.more = list(budgets), list(pods), more
        self.asked: Counter[str] = Counter()

    async def get(self, path, **params) -> bytes:
        kind = path.rpartition("/")[2]
        self.asked[kind] += 1
        items = self.budgets if kind == "poddisruptionbudgets" else self.pods
        if kind == "poddisruptionbudgets" and len(items) > int(params["limit"]):
            return json.dumps({"items": [], "metadata": {"continue": "more"}}).encode()
        metadata = {"continue": self.more} if kind == "pods" else {}
        return json.dumps({"items": items, "metadata": metadata}).encode()


def labelled(uid: str, app: str) -> dict:
    return {"metadata": {"uid": uid, "labels": {"app": app}}}


@pytest.fixture
def engine():
    """Return one with two gangs that may be moved, and one that may not."""
    made = an_engine(node("n"))
    for name in ("a", "b", "c"):
        made.observe(GangSeen(gang(name, 2, movable=name != "c")), 0.0)
        for index in range(2):
            made.observe(pod(f"{name}-{index}", name, node=NodeName("n")), 0.0)
    return made


PODS = [labelled(f"{name}-{index}", name) for name in "abc" for index in range(2)]


async def test_a_gang_with_more_pods_than_a_budget_spares_is_protected(engine):
    api = Api([budget("a", 1), budget("b", 2)], PODS)
    assert await protected(api, engine.view) == {A}


async def test_pods_are_listed_once_however_many_budgets_there_are(engine):
    api = Api([budget("x", 0)] * BUDGETS.most, PODS)
    assert await protected(api, engine.view) == frozenset()
    assert api.asked == {"poddisruptionbudgets": 1, "pods": 1}


async def test_where_there_is_no_budget_no_pods_are_listed(engine):
    api = Api([], PODS)
    assert await protected(api, engine.view) == frozenset()
    assert api.asked == {"poddisruptionbudgets": 1}


async def test_no_gang_of_a_namespace_with_too_many_budgets_is_moved(engine):
    assert await protected(Api([budget("x", 0)] * (BUDGETS.most + 1), PODS), engine.view) == {A, B}


async def test_no_gang_of_a_namespace_with_too_many_pods_is_moved(engine):
    api = Api([budget("x", 0)], PODS * 100, more="more")
    assert await protected(api, engine.view) == {A, B}
    assert api.asked["pods"] * len(PODS) * 100 < PODS_READ.most + len(PODS) * 100 * 2


@pytest.mark.parametrize("wrong", [{"status": {"disruptionsAllowed": "x"}}, 5])
async def test_no_gang_of_a_namespace_with_unreadable_budgets_is_moved(wrong, engine):
    assert await protected(Api([wrong], PODS), engine.view) == {A, B}


async def test_without_an_answer_no_gang_is_moved(engine):
    class Down:
        async def get(self, *_, **__) -> bytes:
            raise Unavailable(0, "down")

    assert await protected(Down(), engine.view) == {A, B}


async def test_queues_spare_protected_gangs_whether_they_may_be_moved_or_not(engine):
    api = Api([budget("a", 2), budget("c", 1)], PODS)
    assert await stoppable_protected(api, engine.view) == {C}


async def test_a_namespace_with_too_many_budgets_is_not_spared(engine):
    many = Api([budget("x", 0)] * (BUDGETS.most + 1), PODS)
    assert await stoppable_protected(many, engine.view) == frozenset()
    engine.observe(BudgetsSeen((A,)), 0.0)
    assert await stoppable_protected(many, engine.view) == {A}


async def test_of_very_many_namespaces_each_has_its_turn():
    engine = an_engine(node("n", 800, pods=1000))
    count = NAMESPACES_READ.most + 5
    for number in range(count):
        name = f"ns{number:03}/g"
        engine.observe(GangSeen(Gang(GangId(name), 1, (), movable=True)), 0.0)
        seen = pod(f"p{number}", None, node=NodeName("n"))
        engine.observe(
            type(seen)(seen.uid, PodName(f"{name}-0"), seen.needs, GangId(name), node=seen.node),
            0.0,
        )
    api = Api()
    first = await protected(api, engine.view)
    assert api.asked == {"poddisruptionbudgets": NAMESPACES_READ.most}
    assert len(first) == 5
    second = await protected(api, engine.view, 1)
    assert len(second) == 5
    assert not first & second


@pytest.mark.parametrize(
    ("selector", "labels", "selected"),
    [
        (None, {}, False),
        (_Selector(), {}, True),
        (_Selector({"a": "1"}), {"a": "1", "b": "2"}, True),
        (_Selector({"a": "1"}), {"a": "2"}, False),
        (_Selector({}, [_Expression("a", "In", ["1", "2"])]), {"a": "2"}, True),
        (_Selector({}, [_Expression("a", "In", ["1", "2"])]), {}, False),
        (_Selector({}, [_Expression("a", "NotIn", ["1"])]), {}, True),
        (_Selector({}, [_Expression("a", "NotIn", ["1"])]), {"a": "1"}, False),
        (_Selector({}, [_Expression("a", "Exists")]), {"a": ""}, True),
        (_Selector({}, [_Expression("a", "DoesNotExist")]), {"a": ""}, False),
        (_Selector({}, [_Expression("a", "New")]), {}, True),
    ],
)
def test_the_objects_that_a_selector_selects(selector, labels, selected):
    assert _selects(selector, labels) is selected
