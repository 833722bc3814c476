"""Parts of jobs, told to the controllers of their owners."""

import msgspec
import pytest

from gangsched.api import names
from gangsched.core.jobs.model import GROUP_VERSION
from gangsched.operators import runner
from gangsched.operators.parts import PartReceiver


class Controller:
    """Writes down what it is told."""

    def __init__(self):
        self.told = []

    def part_seen(self, kind, body, owner):
        self.told.append(("seen", kind, body["metadata"]["name"], owner))

    def part_gone(self, kind, body, owner):
        self.told.append(("gone", kind, body["metadata"], owner))


def raw(name="p", **metadata) -> bytes:
    names = {"uid": f"uid-{name}", "name": name, "namespace": "ns"}
    return msgspec.json.encode({"metadata": names | metadata, "spec": {"x": 1}})


def owner(kind="PyTorchJob", *, controller=True) -> dict:
    return {"apiVersion": "v1", "kind": kind, "name": "j", "uid": "u", "controller": controller}


@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"ownerReferences": [owner()]}, True),
        ({"ownerReferences": [owner("ReplicaSet"), owner()]}, False),
        ({"ownerReferences": [owner(controller=False)]}, False),
        ({"ownerReferences": [owner("Node", controller=False), owner()]}, True),
        ({"ownerReferences": None}, False),
        ({}, False),
    ],
)
def test_parts_go_to_who_controls_them(metadata, told):
    controller = Controller()
    receiver = PartReceiver("Pod", {"PyTorchJob": controller})
    receiver.seen(raw(**metadata))
    assert controller.told == ([("seen", "Pod", "p", "j")] if told else [])


@pytest.mark.parametrize("last", [None, raw(ownerReferences=[owner()], labels={"a": "b"})])
def test_what_is_gone_is_told_once_whether_or_not_its_last_state_is_known(last):
    controller = Controller()
    receiver = PartReceiver("Pod", {"PyTorchJob": controller})
    receiver.seen(raw(ownerReferences=[owner()]))
    receiver.gone("uid-p", last)
    receiver.gone("uid-p", last)
    assert len(controller.told) == 2
    what, kind, metadata, of = controller.told[1]
    assert (what, kind, of) == ("gone", "Pod", "j")
    assert (metadata["namespace"], metadata["name"], metadata["uid"]) == ("ns", "p", "uid-p")


def test_what_was_never_a_part_is_not_told_gone():
    controller = Controller()
    receiver = PartReceiver("Pod", {"PyTorchJob": controller})
    receiver.seen(raw())
    receiver.gone("uid-p", None)
    receiver.seen(b'{"metadata": {"uid": 3}}')
    assert not controller.told


def test_jobs_make_podgroups_of_the_version_that_users_write():
    assert f"{names.GROUP}/{names.VERSION}" == GROUP_VERSION


@pytest.mark.parametrize("missing", ["", "optuna", "re2"])
def test_experiments_are_left_alone_without_their_extra(monkeypatch, caplog, missing):
    caplog.set_level("INFO")
    there = runner.find_spec
    monkeypatch.setattr(runner, "find_spec", lambda name: None if name == missing else there(name))
    kinds = [one.kind for one in runner._searches()]
    assert kinds == ([] if missing else ["Experiment", "Trial"])
    assert ("need the extra gangsched[experiments]" in caplog.text) == bool(missing)
