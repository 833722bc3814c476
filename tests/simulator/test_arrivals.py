"""FGD's model: pods that arrive and stay, their order, and its published table."""

import gzip
import importlib
import sys
from pathlib import Path

import pytest
from builders import needs, node

from policies.pack import Pack
from simulator.virtual.pod_arrivals import arrive

ROOT = Path(__file__).parents[2]
DATA = ROOT.parent / "shared" / "data"


@pytest.fixture(scope="module")
def fgd():
    if not DATA.exists():
        pytest.skip("the trace is not here")
    sys.path.insert(0, str(ROOT / "bench"))
    yield importlib.import_module("fgd")
    sys.path.remove(str(ROOT / "bench"))


def test_what_does_not_fit_is_gone_and_what_is_smaller_still_comes():
    pods = [needs(8), needs(6), needs(4), needs(2)]
    found = arrive([node("a"), node("b")], pods, Pack())
    assert [one.asked_milli for one in found] == [8000, 14_000, 18_000, 20_000]
    assert [one.used_milli for one in found] == [8000, 14_000, 14_000, 16_000]


@pytest.mark.parametrize("workload", ["default", "multigpu50"])
def test_pods_come_in_the_order_of_the_artifact(workload, fgd):
    made = fgd.orders(workload)
    for seed, order in zip(fgd.SEEDS, made, strict=True):
        path = DATA / "fgd-expected" / "pod_order" / f"{workload}_seed{seed}.txt.gz"
        kept = [int(pod) for pod in gzip.decompress(path.read_bytes()).split()]
        same = min(len(kept), len(order))
        assert abs(len(kept) - len(order)) <= 8  # about its last pods, beyond what is measured
        assert order[:same] == kept[:same]


@pytest.mark.parametrize(
    ("policy", "gate"), [("05-BestFit", 0.6), ("01-Random", 0.9), ("04-GpuPacking", 0.9)]
)
def test_the_published_share_of_one_seed_comes_out(policy, gate, fgd):
    found = fgd.measure("multigpu50", policy, 42, fgd.orders("multigpu50")[0])
    assert found == pytest.approx(fgd.expected()["multigpu50", policy][42], abs=gate)


def test_a_pod_is_placed_as_a_planner_sees_it():
    seen = []

    class Notes(Pack):
        def place(self, waiting, snapshot):
            seen.append(waiting)
            return super().place(waiting, snapshot)

    arrive([node("a")], [needs(2)], Notes())
    (one,) = seen
    assert one.kinds == (needs(2),)
    assert one.charge
    assert one.request_fingerprint
