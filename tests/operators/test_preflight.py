"""Objects that a job's templates name are read by name only."""

import msgspec
import pytest

from gangsched.core.bounds import CONFIG_MAPS
from gangsched.jobs.common.model import Intent
from gangsched.kube.client.errors import NotFound
from gangsched.kube.status.events import ObjectRef
from gangsched.operators.controllers.preflight import preflight
from gangsched.operators.job_kind import BlockedError, RejectedError

JOB = ObjectRef("kubeflow.org/v1", "PyTorchJob", "ns", "j", "u")


class Server:
    """An API server without any ConfigMap, which writes down what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def get(self, path, **_) -> bytes:
        self.asked.append(path)
        if "configmaps" in path:
            raise NotFound(404, path)
        return b'{"items": []}'

    async def create(self, path, body) -> bytes:
        return msgspec.json.encode(body)


def intents(*names: str) -> list[Intent]:
    """Return a pod that reads some ConfigMaps in each way there is."""
    ways = (
        lambda name: {"envFrom": [{"configMapRef": {"name": name}}]},
        lambda name: {"env": [{"name": "e", "valueFrom": {"configMapKeyRef": {"name": name}}}]},
    )
    containers = [{"name": "c", **ways[i % 2](name)} for i, name in enumerate(names)]
    volumes = [{"name": "v", "configMap": {"name": names[0]}}]
    spec = {"containers": containers, "volumes": volumes}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    return [Intent(1, pod, spec)]


@pytest.mark.parametrize(
    "name",
    [
        "../../kube-system/secrets/bootstrap-token",
        "../../../pods?watch=1",
        "..",
        "A",
        "a/b",
        "a%2Fb",
    ],
)
async def test_a_name_that_is_none_is_refused_and_not_asked_for(name):
    server = Server()
    with pytest.raises(RejectedError, match="which is not a valid name"):
        await preflight(server, JOB, intents(name))
    assert not [path for path in server.asked if "configmaps" in path]


async def test_a_config_map_that_is_not_there_is_waited_for():
    server = Server()
    with pytest.raises(BlockedError, match=r"ConfigMap ns/some\.map does not exist"):
        await preflight(server, JOB, intents("some.map"))
    assert server.asked[-1] == "/api/v1/namespaces/ns/configmaps/some.map"


async def test_so_many_config_maps_are_not_asked_for():
    server = Server()
    with pytest.raises(RejectedError, match=f"101 ConfigMaps; {CONFIG_MAPS.most} are allowed"):
        await preflight(server, JOB, intents(*(f"c{i}" for i in range(CONFIG_MAPS.most + 1))))
    assert not [path for path in server.asked if "configmaps" in path]


class WithQuota(Server):
    """An API server with a quota of 16 GPUs by a name that it does not count."""

    async def get(self, path, **_) -> bytes:
        self.asked.append(path)
        quota = {"metadata": {"name": "q"}, "spec": {"hard": {"nvidia.com/gpu": "16"}}}
        return msgspec.json.encode({"items": [quota] if "quotas" in path else []})


async def test_two_jobs_of_one_moment_do_not_both_get_a_whole_quota():
    spec = {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": spec}
    server, wanted = WithQuota(), [Intent(2, pod, spec)]
    await preflight(server, JOB, wanted)
    await preflight(server, JOB, wanted)  # it does not stand in its own way
    other = ObjectRef("kubeflow.org/v1", "PyTorchJob", "ns", "k", "v")
    with pytest.raises(
        BlockedError, match=r"used: nvidia\.com/gpu=16, limited: nvidia\.com/gpu=16"
    ):
        await preflight(server, other, wanted)
    elsewhere = ObjectRef("kubeflow.org/v1", "PyTorchJob", "other", "k", "w")
    await preflight(server, elsewhere, wanted)
    assert "/apis/gangsched.io/v1beta1/namespaces/ns/podgroups" in server.asked
