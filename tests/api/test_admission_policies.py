"""Versions of API servers with MutatingAdmissionPolicy, and whether they record the user."""

import json

import pytest

from gangsched.api import names
from gangsched.kube.client.errors import NotFound
from gangsched.kube.decoding.users import Users, policies_served

ROOT = "/apis/admissionregistration.k8s.io"
SERVED = {"resources": [{"name": "mutatingadmissionpolicies"}, {"name": "other"}]}
NOT_SERVED = {"resources": [{"name": "validatingadmissionpolicies"}]}


class Api:
    """An API server that has these paths."""

    def __init__(self, paths: dict[str, dict]) -> None:
        self.paths = paths

    async def get(self, path: str) -> bytes:
        if path not in self.paths:
            raise NotFound(404, path)
        return json.dumps(self.paths[path]).encode()


@pytest.mark.parametrize(
    ("groups", "wanted"),
    [
        ({"v1": SERVED}, "v1"),
        ({"v1": NOT_SERVED, "v1beta1": SERVED}, "v1beta1"),
        ({"v1": NOT_SERVED, "v1beta1": NOT_SERVED}, ""),
        ({"v1": NOT_SERVED}, ""),
    ],
)
async def test_the_version_that_is_served_is_found(groups, wanted):
    api = Api({f"{ROOT}/{version}": found for version, found in groups.items()})
    assert await policies_served(api) == wanted


@pytest.mark.parametrize(("version", "known"), [("v1", True), ("v1beta1", True), ("", False)])
async def test_users_are_known_by_a_policy_of_either_version(version, known):
    path = f"{ROOT}/{version}/mutatingadmissionpolicybindings/{names.USER_POLICY}"
    users = Users(Api({path: {}}))
    await users.refresh()
    assert users.known is known
