"""Purchases of nodes from Karpenter as pure functions."""

import json
from dataclasses import replace

import pytest
from builders import GPU, an_engine, needs, node, pod, templated

from gangsched.autoscaling_config import KarpenterConfig
from gangsched.config import ConfigError, load_config
from gangsched.core import facts as f
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.queues import Queue
from gangsched.kube.decoding.cluster.nodes import node_fact
from gangsched.kube.provisioning.arrival_times import ArrivalTimes
from gangsched.kube.provisioning.karpenter.decide import (
    NodeState,
    PurchaseState,
    purchases,
    steps,
)
from gangsched.kube.provisioning.karpenter.objects import (
    ClaimPage,
    NodeClaim,
    add_claims,
    decode_pools,
    read_purchase,
    written_purchase,
)
from gangsched.kube.provisioning.karpenter.pools import claim_body, core_pools, within_limits
from gangsched.kube.provisioning.karpenter.spending import spent_by_queue

P5 = {
    "name": "p5",
    "node_pool": "gpu",
    "instance_type": "p5.48xlarge",
    "resources": {GPU: "8", "cpu": "190"},
    "price": 98.25,
}
CONFIG = KarpenterConfig.model_validate(
    {"pools": [P5, {**P5, "name": "spot", "spot": True, "zone": "a", "price": 30}]}
)
POOLS = {pool.name: pool for pool in CONFIG.pools}
BASE, GANG = "gangsched-" + "a" * 20, GangId("ns/g")
TWO = (("p5", 2),)
IDLE, BUSY, CLOSED = (
    NodeState(closed=False, idle_since_s=0.0),
    NodeState(closed=False),
    NodeState(closed=True, idle_since_s=0.0),
)


def claim(index, node=None, **more) -> NodeClaim:
    name = f"{BASE}-1-{index}"
    known = NodeClaim(name, f"u{index}", GANG, BASE, 1, index, TWO, 100.0)
    there = {"node": NodeName(node), "ready_s": 400.0} if node else {}
    return replace(known, **{**there, **more})


def state_of(*claims, whole=True, now_s=200.0):
    created = {(BASE, 1)} if whole else set()
    (one,) = purchases(claims, created, CONFIG, now_s)
    return one


def todo(*claims, wanted=None, nodes=None, whole=True, now_s=450.0):
    """Return what is done, as names."""
    one = state_of(*claims, whole=whole, now_s=now_s)
    wanted = {GANG: BASE} if wanted is None else wanted
    nodes = {NodeName(name): state for name, state in (nodes or {}).items()}
    found = steps([one], wanted, nodes, CONFIG, now_s)
    return {
        "create": [index for _, index in found.create],
        "open": found.open,
        "close": found.close,
        "delete": [claim.index for claim in found.delete],
    }


NOTHING = {"create": [], "open": [], "close": [], "delete": []}


# -- states -----------------------------------------------------------------------------------


def test_a_purchase_arrives_with_its_last_node():
    assert state_of(claim(0), claim(1)).state is PurchaseState.COMING
    assert state_of(claim(0, "a"), claim(1)).state is PurchaseState.COMING
    arrived = state_of(claim(0, "a"), claim(1, "b", ready_s=500.0))
    assert (arrived.state, arrived.since_s) == (PurchaseState.ARRIVED, 500.0)


def test_a_claim_that_karpenter_gives_up_fails_the_purchase():
    for claims in ((claim(0),), (claim(0), claim(1, deleting=True))):
        failed = state_of(*claims)
        assert (failed.state, failed.blame) == (PurchaseState.FAILED, {"p5"})
        assert failed.why == "Karpenter gave up 1 of 2 nodes"
        assert todo(*claims)["delete"] == [0]


def test_a_claim_that_may_never_have_been_created_is_created():
    """An earlier process was killed between two claims."""
    assert state_of(claim(0), whole=False).state is PurchaseState.COMING
    assert todo(claim(0), whole=False) == {**NOTHING, "create": [1]}


def test_late_nodes_are_given_back_with_the_reason():
    late = state_of(claim(0, "a"), claim(1, message="no quota"), now_s=1001.0)
    assert late.state is PurchaseState.FAILED
    assert late.why == "1 of 2 nodes were not there after 900 s: no quota"
    found = todo(claim(0, "a"), claim(1), nodes={"a": CLOSED}, now_s=1001.0)
    assert found == {**NOTHING, "delete": [0, 1]}


# -- steps ------------------------------------------------------------------------------------


def test_nodes_are_opened_together():
    here = (claim(0, "a"), claim(1, "b"))
    assert todo(claim(0, "a"), claim(1), nodes={"a": CLOSED}) == NOTHING
    assert todo(*here, nodes={"a": CLOSED, "b": CLOSED})["open"] == ["a", "b"]
    assert todo(*here, nodes={"a": IDLE, "b": IDLE}) == NOTHING, "reserved"


@pytest.mark.parametrize("wanted", [{}, {GANG: "another"}])
def test_a_gang_that_is_gone_or_changed_leaves_no_node(wanted):
    assert todo(claim(0), claim(1), wanted=wanted)["delete"] == [0, 1]
    assert todo(claim(0), wanted=wanted, whole=False) == {**NOTHING, "delete": [0]}
    here = (claim(0, "a"), claim(1, "b"))
    closed = {"a": CLOSED, "b": CLOSED}
    assert todo(*here, wanted=wanted, nodes=closed)["delete"] == [0, 1]


def test_nodes_without_gangs_are_closed_and_then_given_back():
    here = (claim(0, "a"), claim(1, "b"))
    assert todo(*here, wanted={}, nodes={"a": BUSY, "b": BUSY}) == NOTHING
    assert (
        todo(*here, wanted={}, nodes={"a": BUSY, "b": NodeState(closed=False, idle_since_s=430.0)})
        == NOTHING
    )
    found = todo(
        *here, wanted={}, nodes={"a": BUSY, "b": NodeState(closed=False, idle_since_s=420.0)}
    )
    assert found == {**NOTHING, "close": ["b"]}
    assert todo(*here, wanted={}, nodes={"a": BUSY, "b": CLOSED}) == {**NOTHING, "delete": [1]}
    busy = NodeState(closed=True)  # a gang was placed there meanwhile
    assert todo(*here, wanted={}, nodes={"a": BUSY, "b": busy}) == NOTHING


def test_nodes_wait_for_their_gang_only_so_long():
    here = (claim(0, "a"), claim(1, "b"))
    assert todo(*here, nodes={"a": IDLE, "b": IDLE}, now_s=999.0) == NOTHING
    found = todo(*here, nodes={"a": IDLE, "b": IDLE}, now_s=1001.0)
    assert found == {**NOTHING, "close": ["a", "b"]}


def test_a_gang_that_has_its_places_keeps_its_nodes():
    here = (claim(0, "a"), claim(1, "b"))
    assert todo(*here, wanted={GANG: None}, nodes={"a": IDLE, "b": IDLE}) == NOTHING


def test_the_other_nodes_of_a_lost_one_wait_for_those_that_replace_it():
    """A node was taken back; the gang has a second purchase for what it lacks."""
    rest = purchases([claim(0, "a")], {(BASE, 1)}, CONFIG, 3000.0)
    more = replace(claim(0), attempt=2, nodes=(("p5", 1),), created_s=2990.0)
    coming = purchases([more], {(BASE, 2)}, CONFIG, 3000.0)
    nodes = {NodeName("a"): IDLE}
    found = steps([*rest, *coming], {GANG: BASE}, nodes, CONFIG, 3000.0)
    assert not found.close
    assert not found.delete
    found = steps(rest, {GANG: BASE}, nodes, CONFIG, 3000.0)
    assert found.close == ["a"]


def test_a_node_that_vanished_takes_its_claim_along():
    assert todo(claim(0, "a"), claim(1, "b"), wanted={}, nodes={"b": BUSY})["delete"] == [0]


# -- objects ----------------------------------------------------------------------------------

TEMPLATE = {
    "metadata": {"labels": {"team": "ml"}},
    "spec": {
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "taints": [{"key": GPU, "effect": "NoSchedule"}],
        "requirements": [
            {"key": "node.kubernetes.io/instance-type", "operator": "Exists"},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        ],
        "expireAfter": "720h",
    },
}


def node_pools(page=None, **limits):
    pool = {"metadata": {"name": "gpu"}, "spec": {"template": TEMPLATE, "limits": limits}}
    return decode_pools(json.dumps({"items": [pool]}).encode(), page or ClaimPage())


def listed(*claims) -> ClaimPage:
    page = ClaimPage()
    assert add_claims(json.dumps({"items": claims, "metadata": {}}).encode(), page) == ""
    return page


def body(index=0, nodes=TWO):
    return claim_body(GANG, BASE, 1, index, nodes, POOLS, node_pools())


def test_a_claim_has_the_template_of_its_pool_and_one_instance_type():
    made = body(1, (("p5", 1), ("spot", 1)))
    assert made["metadata"]["name"] == f"{BASE}-1-1"
    assert made["metadata"]["labels"]["team"] == "ml"
    assert made["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] == "true"
    assert made["spec"]["taints"] == TEMPLATE["spec"]["taints"]
    assert made["spec"]["startupTaints"] == [{"key": "gangsched.io/closed", "effect": "NoSchedule"}]
    wanted = {one["key"]: one.get("values") for one in made["spec"]["requirements"]}
    assert wanted == {
        "kubernetes.io/arch": ["amd64"],
        "node.kubernetes.io/instance-type": ["p5.48xlarge"],
        "karpenter.sh/capacity-type": ["spot"],
        "topology.kubernetes.io/zone": ["a"],
    }
    assert made["spec"]["resources"]["requests"] == {GPU: "8", "cpu": "190"}


def test_a_bought_node_has_its_price():
    annotations = body()["metadata"]["annotations"]
    raw = {"metadata": {"name": "n", "annotations": annotations}, "status": {"allocatable": {}}}
    assert node_fact(json.dumps(raw).encode()).node.price == 98.25


@pytest.mark.parametrize("text", ["", "-1", "1e3", "nan", "1" * 10, "1.", " 1"])
def test_a_text_that_is_no_price_is_none(text):
    annotations = {"gangsched.io/price-per-hour": text}
    raw = {"metadata": {"name": "n", "annotations": annotations}, "status": {"allocatable": {}}}
    assert node_fact(json.dumps(raw).encode()).node.price is None


def test_nodes_are_spent_by_the_queue_that_uses_them():
    engine = an_engine(node("used"), node("idle"))
    for name, queue in (("g", "q"), ("other", "o")):
        engine.observe(f.QueueSeen(Queue(queue)), 0.0)
        engine.observe(f.GangSeen(templated(name, 1, needs(1), queue=queue)), 0.0)
    engine.observe(pod("other-0", "other", needs(1), node=NodeName("used")), 0.0)
    claims = [claim(0, "used"), claim(1, "idle"), claim(1), claim(0, deleting=True)]
    assert spent_by_queue(claims, engine.view, POOLS) == {"o": 98.25, "q": 2 * 98.25}
    assert spent_by_queue(claims, an_engine().view, POOLS) == {}, "its gang is gone"


def test_what_is_written_is_read_again():
    made = body(1)
    made["metadata"] |= {"uid": "u1", "creationTimestamp": "1970-01-01T00:01:40Z"}
    page = listed(made)
    assert page.ours == [claim(1)]
    assert (page.counts, page.used["gpu"][GPU]) == ({"gpu": 1}, 8)
    made["status"] = {
        "nodeName": "n",
        "conditions": [
            {"type": "Launched", "status": "True"},
            {"type": "Registered", "status": "True", "lastTransitionTime": "1970-01-01T00:06:40Z"},
        ],
    }
    assert listed(made).ours == [claim(1, "n")]


def test_claims_of_others_only_count():
    other = {"metadata": {"name": "gpu-x", "labels": {"karpenter.sh/nodepool": "gpu"}}}
    renamed = body()
    renamed["metadata"]["name"] = "mine"
    malformed = body()
    malformed["metadata"]["annotations"]["gangsched.io/purchase"] = "p5=99999999"
    page = listed(other, renamed, malformed)
    assert page.ours == []
    assert page.counts == {"gpu": 3}


def test_a_pool_has_room_within_its_limits():
    times = ArrivalTimes()
    times.add("p5", 60.0)

    def left(page=None, claims=(), **limits):
        pools = core_pools(CONFIG.pools[:1], node_pools(page, **limits), claims, times, {})
        return [(pool.nodes_left, pool.arrival_s) for pool in pools]

    assert left(**{GPU: "32"}) == [(4, 60.0)]
    assert left(nodes="3") == [(3, 60.0)]
    assert left(listed(body()), **{GPU: "32"}) == [(3, 60.0)]
    assert left(listed(body(), body(1)), **{GPU: "8"}) == [(0, 60.0)]
    assert core_pools(CONFIG.pools, {}, (), times, {}) == [], "there is no NodePool of that name"


def test_pools_share_the_limits_of_their_node_pool():
    states = node_pools(**{GPU: "32"})
    assert within_limits((("p5", 2), ("spot", 2)), POOLS, states)
    assert not within_limits((("p5", 3), ("spot", 2)), POOLS, states)


def test_nodes_of_a_pool_look_like_those_that_will_come():
    (pool, _) = core_pools(CONFIG.pools, node_pools(), (), ArrivalTimes(), {})
    template = pool.template
    assert dict(template.allocatable) == {GPU: 8, "cpu": 190_000, "pods": 110}
    assert [taint.key for taint in template.taints] == [GPU]
    assert template.labels["kubernetes.io/arch"] == "amd64"
    assert template.labels["node.kubernetes.io/instance-type"] == "p5.48xlarge"


def test_nodes_are_written_as_text():
    assert read_purchase(written_purchase((("a", 1), ("p5", 4)))) == (("a", 1), ("p5", 4))
    for text in ("", "p5", "p5=0", "p5=x", "P5=1", "p5=1,", "p5=-1"):
        assert read_purchase(text) is None


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("karpenter: {pools: []}", "karpenter.pools"),
        ("karpenter: {}", "karpenter.pools"),
        (json.dumps({"karpenter": {"pools": [P5, P5]}}), "two pools have the name 'p5'"),
        (json.dumps({"karpenter": {"pools": [P5]}, "provisioning": {}}), "provisioning"),
        (json.dumps({"karpenter": {"pools": [{**P5, "price": -1}]}}), "price"),
    ],
)
def test_wrong_settings_are_named(tmp_path, settings, words):
    path = tmp_path / "config.yaml"
    path.write_text(settings)
    with pytest.raises(ConfigError, match=words):
        load_config(path)
