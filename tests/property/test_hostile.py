"""A hostile tenant in its own namespace, beside a tenant with small gangs.

Whatever he creates, changes and deletes: the other's gangs start within so many planning cycles, no
node and no queue has more than it may, the books say what is there, and it takes bounded time and
memory. Histories run in a process of their own, so one that hangs fails.
"""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import patience_s

from simulator.hostile.objects import KINDS, OFTEN, SCALES, made, retouched
from simulator.hostile.truth import RealPod, Truth, kubelet_requests
from simulator.hostile.verdict import beyond_limit
from simulator.hostile.worker import HistoryWorker

QUICK_S = 20.0
SEEDS = st.integers(0, 2**32 - 1)
AT = st.integers(0, 99)
SIZES = st.sampled_from(SCALES)

CREATE = st.fixed_dictionaries(
    {"do": st.just("create"), "kind": st.sampled_from(OFTEN), "seed": SEEDS, "scale": SIZES}
)
EDIT = st.fixed_dictionaries({"do": st.just("edit"), "at": AT, "seed": SEEDS, "scale": SIZES})
DELETE = st.fixed_dictionaries({"do": st.just("delete"), "at": AT})
ELSE = st.sampled_from([{"do": word} for word in ("plan", "plan", "serve", "restart", "think")])
HISTORIES = st.fixed_dictionaries(
    {
        "borrowing": st.sampled_from((False, False, False, True)),
        "steps": st.lists(st.one_of(CREATE, CREATE, CREATE, EDIT, DELETE, ELSE), max_size=16),
    }
)

assert set(OFTEN) == set(KINDS), "a kind that nobody creates"


class Judge:
    """Has histories lived through; once one hung, it alone is told to fail again."""

    def __init__(self, worker: HistoryWorker) -> None:
        self._worker = worker
        self._hung: dict[str, list[str]] = {}

    def violations(self, history: dict) -> list[str]:
        """Return what went wrong; trying many that hang would take as many deadlines."""
        key = json.dumps(history)
        if self._hung:
            return self._hung.get(key, [])
        found = self._worker.run(history)
        if found.get("died"):
            self._hung[key] = found["violations"]
        return found["violations"]


@pytest.fixture(scope="module")
def worker():
    """Return a process that lives through one history after the other."""
    with HistoryWorker(patience_s(QUICK_S)) as made:
        yield made


@pytest.fixture(scope="module")
def judge(worker):
    """Return who judges the histories that are drawn."""
    return Judge(worker)


@settings(max_examples=settings.default.max_examples // 2)
@given(history=HISTORIES)
def test_a_tenant_harms_no_other_tenant(judge, history):
    assert judge.violations(history) == []


# -- who judges ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_says_the_same_again(kind):
    for seed in range(20):
        objects = made(kind, "h", seed, seed % 3)
        assert objects == made(kind, "h", seed, seed % 3)
        for one in objects[:3]:
            again = retouched(one, seed, seed % 3)
            assert again["metadata"]["name"] == one["metadata"]["name"]


def asking(name: str, gpus: int, node: str = "n0") -> RealPod:
    """Return a pod of the hostile tenant that was bound."""
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": gpus}}
    spec = {"nodeName": node, "containers": [{"name": "c", "resources": resources}]}
    metadata = {"name": name, "namespace": "hostile", "uid": name}
    return RealPod({"metadata": metadata, "spec": spec}, kubelet_requests(spec), by_us=True)


def test_the_checks_find_a_full_node_and_a_full_queue():
    truth = Truth({"a": asking("a", 8)})
    assert kubelet_requests(truth.pods["a"].document["spec"]) == {
        "cpu": 500,
        "memory": 2**30,
        "nvidia.com/gpu": 8,
    }
    assert truth.overcommitted("n0") == []
    assert not list(beyond_limit(truth, "hostile/a"))
    truth.pods["b"] = asking("b", 1)
    assert truth.overcommitted("n0") == ["n0 has 8 of nvidia.com/gpu, and pods of 9"]
    assert list(beyond_limit(truth, "hostile/b"))
    truth.pods["b"] = asking("b", 1, "n1")
    assert truth.overcommitted("n0") == []
    assert list(beyond_limit(truth, "hostile/b"))
    assert not list(beyond_limit(truth, "victim/c"))


def test_sidecars_count_with_containers_and_steps_one_by_one():
    def one(cpu: str, **more: str) -> dict:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    sidecar = one("1", restartPolicy="Always")
    assert kubelet_requests({"containers": [one("1"), one("250m")]}) == {"cpu": 1250}
    assert kubelet_requests({"containers": [one("1")], "initContainers": [sidecar]}) == {
        "cpu": 2000
    }
    steps = [one("1"), sidecar, one("3")]
    assert kubelet_requests({"containers": [one("1")], "initContainers": steps}) == {"cpu": 4000}


def test_a_history_that_hangs_is_a_violation(worker):
    with HistoryWorker(0.01) as hasty:
        (said,) = hasty.run({"steps": []})["violations"]
    assert "it takes more than 0 s" in said
    assert worker.run({"steps": []})["violations"] == []
