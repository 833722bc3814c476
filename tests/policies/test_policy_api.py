"""The imports of a policy's author: one module, and for one release the earlier modules."""

import ast
import importlib
import pickle
import sys
import types
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import ClassVar

import numpy as np
import pytest
from builders import needs, node, templated, waiting

from gangsched import plugins, policy_api
from gangsched.config import SchedulerConfig
from gangsched.core import policy
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.queues import Queue
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies
from gangsched.core.snapshot import RunningGang, Snapshot
from policies.pack import Pack

BEFORE = """
from dataclasses import dataclass

import numpy as np

from gangsched.core.model import Waiting
from gangsched.core.nodes import Ints
from gangsched.core.placement.choosers import Bins, fewest, in_order
from gangsched.core.placement.fill import fill
from gangsched.core.policy import Placement
from gangsched.core.refusal import Refusal
from gangsched.core.snapshot import Snapshot


@dataclass(frozen=True)
class MostCpu:
    def place(self, waiting: Waiting, snapshot: Snapshot) -> Placement | Refusal:
        return fill(waiting, snapshot, most_cpu)


def most_cpu(bins: Bins) -> Ints:
    if bins.rows is None:
        return fewest(bins)
    cpu = bins.cluster.free()[bins.rows, bins.cluster.resources.index("cpu")]
    return in_order(bins, np.argsort(-cpu, kind="stable"))
"""
"""The policy of docs/policies.md as it stood there before there was gangsched.policy_api."""

RENAMED = {
    "model": ("Alike", "Constraints", "GPU", "Gang", "GangId", "Member", "NOBODY", "Near",
              "Node", "NodeName", "NodeTerm", "PodName", "PodNeeds", "Requests", "Role", "Seated",
              "Share", "Slices", "Taint", "Waiting", "runtime_s"),
    "model.pods": ("PodNeeds", "Share"),
    "nodes": ("Ints", "Mask"),
    "placement.choosers": ("Chooser", "even", "fewest", "first"),
    "placement.fill": ("Chooser", "Style", "countable", "enough", "fits"),
    "policy": ("Eviction", "Ground", "Proof", "Repartition", "Request"),
    "refusal": ("NearMiss", "Reason", "Refusal", "Remedy", "amount", "plural"),
    "snapshot": ("Allowance", "Place", "Reserved", "Rules", "Running"),
}  # fmt: skip
"""What those modules had, and no longer have under that name."""


@pytest.mark.parametrize("module", RENAMED)
def test_a_name_of_before_works_and_warns(module):
    home = importlib.import_module(f"gangsched.core.{module}")
    for name in RENAMED[module]:
        with pytest.warns(DeprecationWarning, match=rf"{module}\.{name} is gangsched\.core\.\S+:?"):
            assert getattr(home, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'NeverThere'"):
        _ = home.NeverThere


def test_a_policy_of_before_still_places(monkeypatch):
    made = Cluster()
    made.put_node(node("small", cpu=8_000))
    made.put_node(node("large", cpu=64_000))
    found: dict[str, object] = {"__name__": "policies_of_before"}
    monkeypatch.setitem(sys.modules, "policies_of_before", types.ModuleType("policies_of_before"))
    with pytest.warns(DeprecationWarning, match="Waiting is"):
        exec(BEFORE, found)  # noqa: S102 -- the text above
    placed = found["MostCpu"]().place(waiting(templated("g", 8, needs(1))), Snapshot(made, ()))
    assert {place for _, place in placed.nodes} == {"large"}


def test_the_policy_api_has_its_documented_names_and_no_others():
    """The list is sorted and has every name that is imported, so that none is promised unseen."""
    assert policy_api.__file__
    with open(policy_api.__file__) as file:  # noqa: PTH123 -- one line
        tree = ast.parse(file.read())
    imported = {
        alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names
    } - {"TYPE_CHECKING", "renamed"}
    assert imported == set(policy_api.__all__)
    protocols = {"Placer", "QueueOrder", "Sharing", "Backfill", "Preemptor"}
    assert protocols == {
        name for name, one in vars(policy).items() if getattr(one, "_is_protocol", False)
    } - {"Protocol"}
    assert protocols <= set(policy_api.__all__)


@pytest.mark.parametrize(
    ("old", "today"),
    [
        ("beyond_is_judged", "driver_checks_unmodelled"),
        ("coming", "starting"),
        ("holders", "occupants"),
        ("leaving", "terminating"),
        ("lines", "equivalence_classes"),
        ("promises", "backfill_reservations"),
        ("solving", "solver_budget"),
        ("starts", "pods_max"),
        ("unhelped", "preemption_infeasible"),
        ("waiting", "pending"),
    ],
)
def test_a_snapshot_is_read_by_names_of_before(old, today):
    snapshot = Snapshot(Cluster(), ())
    with pytest.warns(DeprecationWarning, match=rf"Snapshot\.{old} is {today} now"):
        assert getattr(snapshot, old) == getattr(snapshot, today)


def test_a_queue_and_a_placement_are_read_by_names_of_before():
    view = policy.QueueView(Queue("q"), 0.5, 7.0, exceeds_nominal=True)
    for old, today in (
        ("beyond", "exceeds_nominal"),
        ("decayed", "historical_gpu_s"),
        ("share", "dominant_share"),
    ):
        with pytest.warns(DeprecationWarning, match=rf"QueueView\.{old} is {today} now"):
            assert getattr(view, old) == getattr(view, today)
    with pytest.warns(DeprecationWarning, match=r"Placement\.gpu_kind is gpu_type now"):
        assert policy_api.Placement((), gpu_type="H100").gpu_kind == "H100"


@dataclass(frozen=True, slots=True)
class ReservesBefore:
    """A backfill policy as it was written for the release before."""

    most: int = 2

    def reserves(self, made: int) -> bool:
        return made < self.most


@dataclass(frozen=True, slots=True)
class YoungestBefore:
    """An order as it was written for the release before."""

    by_age: ClassVar[bool] = False

    def key(self, waiting: PendingGang, now_s: float) -> tuple[float | str, ...]:
        return (-waiting.queued_since_s, waiting.gang.id)

    def peers(self, first: PendingGang, other: PendingGang) -> bool:
        return first is other


def test_a_plugin_with_members_of_before_is_loaded_and_warns(monkeypatch, caplog):
    groups = {
        "gangsched.backfills": {"before": ReservesBefore},
        "gangsched.orders": {"before": YoungestBefore},
    }
    real = plugins.entry_points

    def points(group):
        more = groups.get(group, {}).items()
        made = [EntryPoint(name, f"{__name__}:{cls.__name__}", group) for name, cls in more]
        return [*real(group=group), *made]

    monkeypatch.setattr(plugins, "entry_points", points)
    changes = {"order": "before", "backfill": "before", "backfill_options": {"most": 3}}
    config = SchedulerConfig(**changes)
    policies = pickle.loads(pickle.dumps(plugins.load_policies(config)))  # noqa: S301 -- made here
    assert [policies.backfill.allows_reservation(count) for count in (2, 3)] == [True, False]
    for order in (policies.order, policies.orders["before"]):
        assert order.orders_by_age is False
        assert order.key(waiting(templated("g", 1)), 0.0)[1] == "ns/g"
    said = {record.getMessage().partition(";")[0] for record in caplog.records}
    assert said == {
        "policy before (backfill): member reserves is named allows_reservation now",
        "policy before (order): member by_age is named orders_by_age now",
    }
    caplog.clear()
    assert type(plugins.load_policies(SchedulerConfig(order="fifo")).order).__name__ == "Fifo"


def test_a_plugin_with_members_of_before_plans():
    before = plugins._adapted(YoungestBefore(), "order", "before")
    made = Cluster()
    made.put_node(node("n", cpu=8_000))
    gangs = tuple(
        replace(waiting(templated(name, 1, needs(1))), queued_since_s=at_s)
        for name, at_s in (("a", 1.0), ("b", 2.0))
    )
    plan = make_plan(Snapshot(made, gangs), Policies(before, Pack()), 5.0)
    assert [one.gang for one in plan.placements] == ["ns/b", "ns/a"]


def test_bins_and_reasons_are_read_by_names_of_before():
    bins = policy_api.Bins(Cluster(), needs(1), None, np.array([2]), np.array([0]), 1)
    with pytest.warns(DeprecationWarning, match=r"Bins\.room is capacity now"):
        assert bins.room is bins.capacity
    with pytest.warns(DeprecationWarning, match=r"Reason\.NO_ROOM is NOT_ENOUGH_FREE now"):
        assert policy_api.Reason.NO_ROOM is policy_api.Reason.NOT_ENOUGH_FREE
    assert "NO_ROOM" not in policy_api.Reason.__members__
    with pytest.warns(DeprecationWarning, match=r"Reason\.OVER_QUOTA is QUOTA_IN_USE now"):
        assert policy_api.Reason.OVER_QUOTA is policy_api.Reason.QUOTA_IN_USE
    with pytest.warns(DeprecationWarning, match=r"Reason\.BEYOND_QUOTA is LARGER_THAN_QUOTA now"):
        assert policy_api.Reason.BEYOND_QUOTA is policy_api.Reason.LARGER_THAN_QUOTA


def test_a_running_gang_is_read_by_names_of_before():
    gang = RunningGang(templated("g", 1), (), 0.0, 5.0, last_checkpoint_s=3.0)
    with pytest.warns(DeprecationWarning, match="is last_checkpoint_s now"):
        assert gang.lost_since_s == 3.0
    with pytest.warns(DeprecationWarning, match="is surplus_pods now"):
        assert gang.spare == ()
    with pytest.warns(DeprecationWarning, match="is terminating now"):
        assert not gang.leaving
    with pytest.warns(DeprecationWarning, match="is expected_end_s now"):
        assert gang.free_s(1.0) == 5.0


@pytest.mark.parametrize(
    ("old", "today"),
    [
        ("alike", "equivalence_key"),
        ("avoid", "excluded_nodes"),
        ("kinds", "pod_classes"),
        ("minimum", "members_min"),
        ("most_per_node", "pods_per_node_max"),
        ("repair", "is_refill"),
        ("role_minimum", "role_members_min"),
        ("seated", "placed_members"),
        ("shape", "request_fingerprint"),
        ("since_s", "queued_since_s"),
        ("surplus", "is_scale_up"),
    ],
)
def test_a_pending_gang_is_read_by_names_of_before(old, today):
    pending = waiting(templated("g", 2))
    with pytest.warns(DeprecationWarning, match=rf"PendingGang\.{old} is {today} now"):
        assert getattr(pending, old) == getattr(pending, today)


def test_a_name_of_the_api_of_before_works_and_warns():
    with pytest.warns(DeprecationWarning, match=r"policy_api\.PodNeeds is .*PodRequirements now"):
        assert policy_api.PodNeeds is policy_api.PodRequirements
    with pytest.warns(DeprecationWarning, match="is unmodelled_constraints now"):
        assert needs(1).beyond == ()
    with pytest.warns(DeprecationWarning, match="is gpu_types now"):
        assert waiting(templated("g", 1)).constraints.gpu_kinds == ()


def test_members_of_before_work_and_warn():
    made = Cluster()
    made.put_node(node("small", cpu=8_000))
    with pytest.warns(DeprecationWarning, match=r"Cluster\.take is add_pods now"):
        made.take(0, needs(1), 2)
    assert made.gangs_by_row == {}
    assert made.used.any()
    with pytest.warns(DeprecationWarning, match=r"Cluster\.give is remove_pods now"):
        made.give(0, needs(1), 2)
    assert not made.used.any()
    with Snapshot(made, ()).trial() as trial, pytest.warns(DeprecationWarning, match="add_pods"):
        trial.take(0, needs(1))
