"""The mig-manager's ConfigMap: our entries, and those of others."""

import json

import pytest
import yaml

from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.orders import RepartitionGpus
from gangsched.kube.actuation.mig_writer import MigWriter, config_name
from gangsched.kube.client.errors import Conflict, Invalid, KubeError, NotFound

CUT = RepartitionGpus(GangId("ns/g"), NodeName("n"), ((("1g.10gb", 7),), ()))
ENTRY = config_name(CUT.layouts)


class Api:
    """An API server with one ConfigMap, or none; its first writes fail."""

    def __init__(self, data: dict[str, str] | None, *errors: KubeError) -> None:
        self.data, self.errors, self.labels = data, list(errors), []

    async def get(self, _) -> bytes:
        if self.data is None:
            raise NotFound(404, "none")
        return json.dumps({"data": self.data}).encode()

    async def create(self, _, body) -> bytes:
        return await self.request("POST", _, body=body)

    async def request(self, method, path, *, body) -> bytes:
        if self.errors:
            raise self.errors.pop(0)
        self.data = body["data"]
        return b"{}"

    async def patch(self, path, body) -> bytes:
        self.labels.append(body["metadata"]["labels"]["nvidia.com/mig.config"])
        return b"{}"


def entries(api: Api) -> dict:
    return yaml.safe_load(api.data["config.yaml"])["mig-configs"]


@pytest.mark.parametrize("errors", [(), (Conflict(409, "another wrote"),)])
@pytest.mark.parametrize("data", [None, {}, {"config.yaml": ""}])
async def test_an_entry_is_written_and_the_node_labelled(data, errors):
    api = Api(data, *errors)
    await MigWriter(api, "gpu/config").repartition(CUT)
    assert entries(api)[ENTRY] == [
        {"devices": [0], "mig-enabled": True, "mig-devices": {"1g.10gb": 7}},
        {"devices": [1], "mig-enabled": False},
    ]
    assert api.labels == [ENTRY]


async def test_what_others_wrote_stays():
    theirs = {"all-disabled": [{"devices": "all", "mig-enabled": False}]}
    text = yaml.safe_dump({"version": "v1", "mig-configs": theirs})
    api = Api({"config.yaml": text, "notes": "ours"})
    await MigWriter(api, "gpu/config").repartition(CUT)
    assert entries(api).keys() == {"all-disabled", ENTRY}
    assert api.data["notes"] == "ours"


@pytest.mark.parametrize("text", ["{", "[1, 2]", "mig-configs: [1]", "words", "[" * 5000])
async def test_a_map_that_is_not_understood_is_left_alone(text):
    api = Api({"config.yaml": text})
    with pytest.raises(Invalid, match=r"ConfigMap gpu/config, config\.yaml"):
        await MigWriter(api, "gpu/config").repartition(CUT)
    assert api.data == {"config.yaml": text}
    assert api.labels == []
