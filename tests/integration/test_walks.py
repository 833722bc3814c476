"""The commands of the documentation, typed on their own control plane."""

import shutil
from pathlib import Path

import pages
import pytest
import yaml
from cluster import Cluster
from pages import Shell

from gangsched.api import names
from gangsched.local.plane import Plane

DOWN = "gangsched local down"


@pytest.fixture(scope="module")
def readme(tmp_path_factory):
    """What README.md has a reader try, up to the moment before it is stopped."""
    folder = tmp_path_factory.mktemp("readme")
    with pytest.MonkeyPatch.context() as patch:
        # The plane is called `default`, and is not the one that a developer of this machine has.
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))
        plane, reader = Plane(), Shell(folder)
    lines = [one for one in pages.items("README.md") if one.kind in pages.RUN]
    *before, last = [one for one in lines if not pages.elsewhere(one)]
    assert last.text == DOWN
    try:
        said = {one.text: reader.do(one) for one in before}
        cluster = Cluster(plane, "extender")
        cluster.clear_namespace("default")  # others tell that such jobs train to their end
        yield cluster, said
        reader.do(last)
        assert not plane.running()
    finally:
        plane.down()


@pytest.fixture
def reader(readme, tmp_path):
    """A reader in a namespace of their own, on that control plane."""
    cluster, _ = readme
    name = cluster.new_namespace()
    yield Shell(tmp_path, cluster.plane.kubeconfig, name), name
    cluster.clear_namespace(name)


def test_the_first_try_explains_a_gang(readme):
    """It waits for the other to end, or runs where that was quick."""
    _, said = readme
    (explained,) = [text for line, text in said.items() if line.startswith("gangsched explain")]
    assert explained.startswith("default/second: ")


@pytest.mark.parametrize("item", pages.everything("object"), ids=str)
def test_an_object_is_taken(readme, item):
    """By the API server, which is told to refuse fields that it does not know.

    One that is there already under its name, such as the Topology of a local plane, is changed.
    """
    cluster, _ = readme
    strict = ("--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    said = cluster.kubectl("apply", *strict, "-f", "-", stdin=item.text)
    assert "serverside-applied (server dry run)" in said


def test_an_mpi_job(reader):
    """docs/jobs/mpijob.md; the launcher has nothing to say where Open MPI is missing."""
    shell, _ = reader
    said = shell.walk("docs/jobs/mpijob.md")
    (log,) = [text for line, text in said.items() if line.startswith("kubectl logs")]
    has_mpi = shutil.which("mpirun") and Path("/usr/sbin/sshd").exists()
    assert "pi is approximately" in log or not has_mpi


def test_a_function_is_trained(reader, readme):
    """docs/jobs/trainjob.md: the SDK hands a function over, and its nodes run it."""
    cluster, _ = readme
    shell, namespace = reader
    shell.walk("docs/jobs/trainjob.md")
    (job,) = cluster.json("trainjobs", "-n", namespace)["items"]
    spec = job["spec"]["trainer"]
    assert spec["numNodes"] == 2
    cluster.wait_placed(namespace, job["metadata"]["name"], 2)


def test_moves_are_looked_for(reader, readme):
    """docs/placement.md, where the gang team/job waits and racks are known."""
    cluster, _ = readme
    shell, namespace = reader
    topology = {
        "apiVersion": "gangsched.io/v1beta1",
        "kind": "Topology",
        "metadata": {"name": "racks"},
        "spec": {"levels": [{"nodeLabel": "topology.gangsched.io/rack", "name": "rack"}]},
    }
    cluster.apply("default", yaml.safe_dump(topology))
    there = {
        "nodeSelector": {"kubernetes.io/hostname": "rack-00"},
        "tolerations": [{"key": "kwok.x-k8s.io/node", "operator": "Exists"}],
    }
    cluster.pod(namespace, "small", gpus=1, **there)
    cluster.wait_placed(namespace, "small", 1)
    with cluster.named_namespace("team") as team:
        cluster.gang(team, "job", 1, **there)
        cluster.wait(lambda: cluster.condition(team, "job"), "the gang to be told why it waits")
        said = shell.walk("docs/placement.md")
    gang, rack = [text for line, text in said.items() if line.startswith("gangsched defrag")]
    assert "no moves within the budget free enough for gang team/job" in gang
    assert "rack" in rack


@pytest.mark.torch
def test_a_job_may_answer_and_a_node_is_to_stop(reader, readme):
    """docs/jobs/stopping.md, with a namespace team-a."""
    cluster, _ = readme
    shell, _ = reader
    cluster.core.create_namespace({"metadata": {"name": "team-a"}})
    try:
        shell.walk("docs/jobs/stopping.md")
        binding = cluster.json("rolebinding", "checkpoint", "-n", "team-a")
        assert binding["subjects"][0]["namespace"] == "team-a"
        node = cluster.json("node", "laptop-0")
        assert names.STOP_ANNOTATION in node["metadata"]["annotations"]
    finally:
        cluster.kubectl("annotate", "node", "laptop-0", f"{names.STOP_ANNOTATION}-")
        cluster.core.delete_namespace("team-a")


def test_a_snapshot_is_asked(reader, readme):
    """docs/simulator.md, below `From a live cluster`."""
    shell, namespace = reader
    cluster, _ = readme
    cluster.gang(namespace, "wide", 2, gpus=64)
    cluster.wait(lambda: cluster.condition(namespace, "wide"), "the gang to be told why it waits")
    said = shell.walk("docs/simulator.md", "From a live cluster")
    (answer,) = [text for line, text in said.items() if line.startswith("gangsched what-if")]
    assert f"{namespace}/wide" in answer


@pytest.mark.parametrize(
    "page", ["first-gang.md", "first-queue.md", "from-volcano.md", "from-kueue.md"]
)
def test_a_tutorial(reader, page):
    """docs/tutorials: what a page says of an answer is in it; it leaves nothing behind."""
    shell, namespace = reader
    said = " ".join("".join(shell.walk(f"docs/tutorials/{page}").values()).split())
    shown = {
        "first-gang.md": (f"helps 4 GPUs of gang {namespace}/job:train-a come free",),
        "first-queue.md": ("Preempted", "blue nvidia.com/gpu 2 4 2 "),
        "from-volcano.md": ("Completed",),
        "from-kueue.md": (
            "helps 1 pod instead of 2",
            "borrowed quota included; the gang needs 4",
        ),
    }
    for words in shown[page]:
        assert words in said
