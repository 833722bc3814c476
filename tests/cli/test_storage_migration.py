"""Stored objects are migrated to one version, with a report for each kind."""

import json

from gangsched.cli.storage_migration import MigratedKind, migrate


class Api:
    """An API server whose PodGroups are stored in two versions, all else in one."""

    def __init__(self) -> None:
        self.patched: list[str] = []

    async def get(self, path: str, **_: str) -> bytes:
        if "customresourcedefinitions" in path:
            stored = ["v1alpha1", "v1beta1"] if "/podgroups." in path else ["v1beta1"]
            versions = [
                {"name": "v1alpha1", "storage": False},
                {"name": "v1beta1", "storage": True},
            ]
            found = {"spec": {"versions": versions}, "status": {"storedVersions": stored}}
            return json.dumps(found | {"metadata": {"resourceVersion": "1"}}).encode()
        items = [{"metadata": {"name": name, "namespace": "ns"}} for name in ("a", "b")]
        return json.dumps({"items": items, "metadata": {}}).encode()

    async def patch(self, path: str, body: dict, **_: str) -> bytes:
        self.patched.append(path.rsplit("/", 2)[1] + "/" + path.rsplit("/", 1)[1])
        return b"{}"


async def test_each_kind_is_reported_as_a_sentence_and_as_data():
    api = Api()
    told = {one.crd: one async for one in migrate(api)}
    moved = told.pop("podgroups.gangsched.io")
    assert str(moved) == (
        "podgroups.gangsched.io: 2 written in v1beta1 (stored before: v1alpha1, v1beta1)"
    )
    assert moved.data() == {
        "crd": "podgroups.gangsched.io",
        "version": "v1beta1",
        "written": 2,
        "storedBefore": ["v1alpha1", "v1beta1"],
    }
    assert api.patched == ["podgroups/a", "podgroups/b", "podgroups.gangsched.io/status"]
    assert told
    assert all(one == MigratedKind(crd, "v1beta1") for crd, one in told.items())
    assert str(MigratedKind("x", "v1beta1")) == "x: all in v1beta1"
