"""Names of gangs in commands: which gang is meant, and the answer for a job without a gang."""

import pytest
from builders import POLICIES, an_engine, gang, needs, node, pod, templated
from rich.console import Console

from gangsched.cli.cluster.lookup import job_state, read_job
from gangsched.cli.cluster.view import ClusterView
from gangsched.cli.output import tables
from gangsched.cli.queries import Changes, explain, predict_start, what_if
from gangsched.config import ConfigError
from gangsched.core import facts as f
from gangsched.core.model.ids import GangId, NodeName
from gangsched.kube.client.errors import Forbidden, NotFound

SMALL = needs(0, cpu=100)


def a_view(*names: str, **more) -> ClusterView:
    """Return a cluster where a pod of each of these gangs waits for a second one."""
    engine = an_engine(node("n"))
    for name in names:
        engine.observe(f.GangSeen(gang(name, 2)), 0.0)
        engine.observe(pod(f"{name}-0", name, SMALL), 1.0)
    return ClusterView(engine, POLICIES, 2.0, **more)


@pytest.mark.parametrize(
    "real", ["second", "job:second", "scheduling.x-k8s.io:second", "pod:second", "lws:second"]
)
def test_a_gang_is_found_by_the_name_its_user_knows(real):
    found = explain(a_view(real, "other"), "ns/second")
    assert found["gang"] == f"ns/{real}"
    assert found["reason"] == "TooFewPods"


def test_a_podgroup_of_gangsched_takes_precedence_over_other_gangs():
    assert explain(a_view("second", "job:second"), "ns/second")["gang"] == "ns/second"
    with pytest.raises(ConfigError, match=r"2 gangs are called .* ns/job:second, ns/lws:second"):
        explain(a_view("job:second", "lws:second"), "ns/second")


def test_the_given_name_is_never_suggested():
    view = a_view("digits", "job:train")
    for name, proposed in (
        ("ns/digit", "; did you mean ns/digits?"),
        ("elsewhere/digits", "; did you mean ns/digits?"),
        ("elsewhere/train", "; did you mean ns/job:train?"),
        ("ns/quite-another", ""),
    ):
        with pytest.raises(ConfigError) as error:
            explain(view, name)
        assert str(error.value).endswith(f"(give NAMESPACE/NAME){proposed}"), name


@pytest.mark.parametrize("name", ["ns/absent", "ns/volcano:absent"])
def test_pods_whose_group_is_missing_are_a_gang_that_waits_for_it(name):
    engine = an_engine(node("n"))
    engine.observe(pod("a", name.split("/")[1], SMALL), 1.0)
    found = explain(ClusterView(engine, POLICIES, 2.0), "ns/absent")
    assert found["reason"] == "PodGroupMissing"
    assert "PodGroup absent" in found["message"]
    assert found["pods"]["there"] == 1
    shown(found)


def shown(found) -> str:
    """Print what was found as the command does."""
    console = Console(width=200)
    with console.capture() as capture:
        tables.show_gang(found, console)
    return capture.get()


def condition(kind: str, status="True", reason="Why", message="in a sentence.") -> dict:
    """Return a condition."""
    return {"type": kind, "status": status, "reason": reason, "message": message}


OWN = {
    "held back": ([condition("Created", reason="PyTorchJobWaiting")], "Waiting", True),
    "waits": ([condition("Scheduled", "False"), condition("Created")], "Waiting", True),
    "invalid": ([condition("Created"), condition("Failed")], "Failed", False),
    "over": ([condition("Running", "False"), condition("Succeeded")], "Finished", False),
    "a Job that is over": ([condition("Complete")], "Finished", False),
    "suspended": ([condition("Created"), condition("Suspended")], "Suspended", True),
    "nothing said": ([], "Created", True),
}


@pytest.mark.parametrize("case", OWN)
def test_a_job_without_a_gang_is_explained_by_its_own_condition(case):
    conditions, state, waits = OWN[case]
    own = {"gang": "ns/j", "kind": "PyTorchJob"} | job_state(
        "PyTorchJob", {"status": {"conditions": conditions}}
    )
    found = explain(a_view("other"), "ns/j", lambda _: own)
    assert found["state"] == state
    assert ("reason" in found) == waits, "the exit code"
    assert found["message"]
    if conditions:
        assert found["message"] == "in a sentence."
    assert found["message"] in shown(found)


class Cluster:
    """An API server with one object; kinds of others may not be read."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def get(self, path: str) -> bytes:
        if "trainer" in path:
            raise Forbidden(403, "no")
        if path != self.path:
            raise NotFound(404, "no")
        return b'{"status": {"phase": "Pending", "message": "role x is unknown"}}'


async def test_the_kinds_of_jobs_are_read_in_order():
    groups = "/apis/gangsched.io/v1beta1/namespaces/ns/podgroups"
    found = await read_job(Cluster(f"{groups}/j"), "ns/j")
    assert found["kind"] == "PodGroup"
    assert found["message"] == "role x is unknown"
    deployments = "/apis/apps/v1/namespaces/ns/deployments"
    found = await read_job(Cluster(f"{deployments}/d"), "ns/d")
    assert "one by one" in found["message"]
    assert await read_job(Cluster(""), "ns/j") is None


GROUP = """
apiVersion: gangsched.io/v1beta1
kind: PodGroup
metadata: {name: g, namespace: ns}
spec:
  roles:
  - name: worker
    count: 2
    template: {spec: {containers: [{name: c, resources: {requests: {cpu: "40"}}}]}}
"""


def test_when_of_an_existing_gang_predicts_a_second_one(tmp_path):
    path = tmp_path / "group.yaml"
    path.write_text(GROUP)
    engine = an_engine(node("n", cpu=100_000))
    first = predict_start(ClusterView(engine, POLICIES, 2.0), path, "ns")
    assert "exists" not in first
    assert (first["gang"], first["reason"]) == ("ns/g", "WouldStart")
    runs = an_engine(node("n", cpu=100_000))
    runs.observe(f.GangSeen(templated("g", 1, needs(0, cpu=40_000))), 0.0)
    runs.observe(pod("g-worker-0", "g", needs(0, cpu=40_000), node=NodeName("n")), 1.0)
    assert runs.view.gangs[GangId("ns/g")].state == "Placed"
    found = predict_start(ClusterView(runs, POLICIES, 2.0), path, "ns")
    assert (found["exists"], found["gang"]) == ("Placed", "ns/g-further")
    assert found["reason"] == "NotEnoughFree", "what runs keeps its room"
    assert runs.view.gangs[GangId("ns/g")].minimum() == 1, "and stays what it was"
    console = Console(width=200)
    with console.capture() as capture:
        tables.show_when(found, console)
    assert "the gang exists already (Placed)" in capture.get()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            "4:gpu-0",
            r"--nodes 4:gpu-0: there is no node 'gpu-0'; the cluster has 4 nodes, such as a0",
        ),
        ("10:b", r"there is no node 'b'; the cluster has 4 nodes, such as b0"),
        ("b0", r"--nodes: 'b0' must be COUNT:NODE, as in 4:gpu-node-1: how many copies"),
        ("0:b0", r"10,000 at most"),
        ("4:", r"must be COUNT:NODE"),
    ],
)
def test_an_unknown_node_is_reported_with_similar_ones(words, told):
    engine = an_engine(*(node(name) for name in ("a0", "a1", "a2", "b0")))
    view = ClusterView(engine, POLICIES, 2.0)
    with pytest.raises(ConfigError, match=told):
        what_if(view, view, Changes(nodes=[words]))
