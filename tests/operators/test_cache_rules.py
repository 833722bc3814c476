"""The cache of an owner and its objects in every job controller, and its writes.

Each rule is stated once, for both families of job kinds.
"""

import msgspec
import pytest
from test_controllers import Server, job, owner, started

from gangsched.kube.client.errors import (
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    Unavailable,
)

FAMILIES = pytest.mark.parametrize("kind", ["PyTorchJob", "JobSet"])
KEY = ("ns", "j")


class Recording(Server):
    """An API server that records each call with its body; names in `taken` exist already."""

    def __init__(self, uid: str | None = "u", **taken: dict) -> None:
        super().__init__(uid)
        self.calls: list[tuple[str, str, dict]] = []
        self.taken = taken
        self.asked = 0
        self.stored: dict | None = None

    async def get(self, path, **params) -> bytes:
        kind, name = path.rsplit("/", 2)[1:]
        if kind in self.taken:
            return msgspec.json.encode(self.taken[kind])
        self.asked += name == "j"
        return await super().get(path, **params)

    async def create(self, path, body) -> bytes:
        self.calls.append(("create", path.rsplit("/", 1)[1], body))
        if path.rsplit("/", 1)[1] in self.taken:
            raise Conflict(409, "exists")
        return await super().create(path, body)

    async def patch(self, path, body, **_) -> bytes:
        self.calls.append(("patch", path.rsplit("/", 1)[1], body))
        kind = "PyTorchJob" if "pytorchjobs" in path else "JobSet"
        known = self.stored or job(kind, "", {})
        metadata = known["metadata"] | {"resourceVersion": str(10 + len(self.calls))}
        return msgspec.json.encode(known | body | {"metadata": metadata | body["metadata"]})

    async def delete(self, path, body) -> None:
        self.calls.append(("delete", path.rsplit("/", 1)[1], body))

    def of(self, verb: str, last: str) -> list[dict]:
        """Return the bodies of the calls of a verb whose path ends so."""
        return [body for what, where, body in self.calls if (what, where) == (verb, last)]

    def events(self, reason: str) -> list[str]:
        """Return the messages of the Events that were written for a reason."""
        return [one["message"] for one in self.of("create", "events") if one["reason"] == reason]


def cache(controller):
    """Return what a controller keeps of the owner."""
    return controller._objects[KEY]


def group_of(controller) -> dict | None:
    """Return the PodGroup that a controller knows of."""
    return cache(controller).parts.get(("PodGroup", "j"))


def group(version: str, uid: str = "g") -> dict:
    """Return the owner's PodGroup as the watch has it."""
    metadata = {"uid": uid, "name": "j", "namespace": "ns", "resourceVersion": version}
    return {"metadata": metadata | {"ownerReferences": [owner()]}, "spec": {}}


def wrong(kind: str, status: dict) -> dict:
    """Return an owner that cannot run as it is written."""
    body = job(kind, "9", status)
    body["spec"] = {"pytorchReplicaSpecs": {"Boss": {}}, "replicatedJobs": []}
    return body


def without_group(kind: str, server: Server):
    """Return a controller of an owner that has no PodGroup, as a step finds it."""
    controller, known = started(kind, server)
    controller.part_gone("PodGroup", known, "j")
    return controller


async def step(controller) -> None:
    """Work on the owner once; a refusal of the API server is the next step's."""
    try:
        await controller._step(KEY)
    except KubeError:
        return


# -- what the watches report ----------------------------------------------------------------------


@FAMILIES
def test_of_two_states_of_an_owner_the_later_counts(kind):
    controller, _ = started(kind, Recording())
    controller.job_seen(job(kind, "5", {"a": 1}))
    controller.job_seen(job(kind, "4", {}))
    assert cache(controller).body["status"] == {"a": 1}


@FAMILIES
def test_a_successor_counts_whatever_its_version(kind):
    controller, _ = started(kind, Recording())
    controller.job_seen(job(kind, "5", {}))
    successor = job(kind, "3", {})
    successor["metadata"]["uid"] = "new"
    controller.job_seen(successor)
    assert cache(controller).body["metadata"]["uid"] == "new"


@FAMILIES
@pytest.mark.parametrize("uid", ["g", "another"])
def test_of_two_states_of_a_part_the_later_counts(kind, uid):
    controller, _ = started(kind, Recording())
    controller.part_seen("PodGroup", group("7", uid), "j")
    controller.part_seen("PodGroup", group("6"), "j")
    metadata = group_of(controller)["metadata"]
    assert (metadata["uid"], metadata["resourceVersion"]) == (uid, "7")


@FAMILIES
def test_a_part_goes_by_its_uid(kind):
    controller, known = started(kind, Recording())
    controller.part_seen("PodGroup", group("7", "successor"), "j")
    controller.part_gone("PodGroup", known, "j")
    assert group_of(controller)["metadata"]["uid"] == "successor"


@FAMILIES
async def test_a_part_of_another_owner_of_the_name_is_no_part(kind):
    server = Recording()
    controller = without_group(kind, server)
    theirs = group("7")
    theirs["metadata"]["ownerReferences"] = [owner() | {"uid": "earlier"}]
    controller.part_seen("PodGroup", theirs, "j")
    await step(controller)
    assert server.of("create", "podgroups")


@FAMILIES
async def test_an_owner_is_looked_up_again_if_more_goes_meanwhile(kind):
    class Going(Recording):
        async def get(self, path, **params) -> bytes:
            if path.endswith("/j") and not self.asked:
                controller.part_gone("PodGroup", group("9", "other"), "j")
            return await super().get(path, **params)

    server = Going()
    controller = without_group(kind, server)
    for asked in (1, 2, 2):
        await step(controller)
        assert server.asked == asked


@FAMILIES
def test_parts_are_known_until_they_go_though_their_owner_is_gone(kind):
    controller, known = started(kind, Recording())
    controller.job_gone(job(kind, "2", {}))
    assert group_of(controller) is not None
    controller.part_gone("PodGroup", known, "j")
    assert not controller._objects


@FAMILIES
async def test_only_the_group_of_the_owners_name_is_its_group(kind):
    """Any object may name any owner: a second PodGroup does not hide the first."""
    controller, _ = started(kind, Recording())
    other = group("9", "other")
    other["metadata"]["name"] = "other"
    controller.part_seen("PodGroup", other, "j")
    assert group_of(controller)["metadata"]["uid"] == "g"


# -- what is written ------------------------------------------------------------------------------


WAITS = {"type": "Scheduled", "status": "False", "reason": "R", "message": "m"}


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("PyTorchJob", "startTime", "2026-01-01T00:00:00Z"),
        ("JobSet", "conditions", [WAITS | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]),
    ],
)
async def test_a_status_is_patched_by_uid_and_names_the_keys_that_go(kind, key, value):
    server = Recording()
    controller = without_group(kind, server)
    body = job(kind, "2", {key: value, "odd": 1})
    if kind == "PyTorchJob":
        body["spec"] = body["spec"] | {"runPolicy": {"suspend": True}}
    controller.job_seen(body)
    await step(controller)
    change = server.of("patch", "status")[0]
    assert change["metadata"] == {"uid": "u"}
    assert change["status"]["odd"] == 1
    assert change["status"][key] is None


@FAMILIES
@pytest.mark.parametrize(("holder", "events"), [("someone", 1), ("j", 0)])
async def test_a_name_that_is_taken_is_reported_once(kind, holder, events):
    """Unless an earlier owner of the same name has it: garbage collection frees that."""
    metadata = {"name": "j", "uid": "x", "ownerReferences": [owner(kind) | {"uid": "other"}]}
    metadata["ownerReferences"][0]["name"] = holder
    server = Recording(podgroups={"metadata": metadata})
    controller = without_group(kind, server)
    for _ in range(2):
        await step(controller)
    message = f"PodGroup j exists already (owner: {kind} someone); give this job another name"
    assert server.events("NameTaken") == [message] * events
    assert group_of(controller) is None


@FAMILIES
async def test_an_own_part_that_exists_already_is_taken_over(kind):
    server = Recording(podgroups=group("4", "kept"))
    controller = without_group(kind, server)
    await step(controller)
    assert group_of(controller)["metadata"]["uid"] == "kept"
    assert not server.events("NameTaken")


@FAMILIES
async def test_the_status_of_an_owner_that_is_gone_is_no_failure(kind):
    class Gone(Recording):
        async def patch(self, path, body, **_) -> bytes:
            if path.endswith("/status"):
                raise NotFound(404, path)
            return await super().patch(path, body)

    controller, _ = started(kind, Gone())
    await controller._step(KEY)


@FAMILIES
async def test_an_owner_that_is_wrong_is_rejected_once(kind):
    server = Recording()
    controller, _ = started(kind, server)
    server.stored = wrong(kind, {})
    controller.job_seen(server.stored)
    for _ in range(2):
        await step(controller)
    (change,) = server.of("patch", "status")
    (failed,) = change["status"]["conditions"]
    assert (failed["type"], failed["status"]) == ("Failed", "True")
    assert server.events(failed["reason"]) == [failed["message"]]


@FAMILIES
@pytest.mark.parametrize("gone", ["deletionTimestamp", "body"])
async def test_nothing_is_written_for_an_owner_that_is_gone_or_leaves(kind, gone):
    server = Recording()
    controller, _ = started(kind, server)
    if gone == "body":
        controller.job_gone(job(kind, "2", {}))
    else:
        cache(controller).body["metadata"][gone] = "2026-01-01T00:00:00Z"
    await step(controller)
    assert not server.calls


@FAMILIES
@pytest.mark.parametrize("reported", [True, False])
async def test_the_events_of_an_earlier_owner_are_none_of_its_successors(kind, reported):
    """An Event is about one object, by its uid, whether or not its deletion was reported."""
    server = Recording()
    controller, _ = started(kind, server)
    for uid in ("u", "new"):
        body = job(kind, "2", {})
        body["metadata"] |= {"uid": uid, "annotations": {"gangsched.io/topology-requried": "x"}}
        if uid == "new" and reported:
            controller.job_gone(job(kind, "3", {}))
        controller.job_seen(body)
        await step(controller)
    assert len(server.events("UnknownKey")) == 2


@FAMILIES
async def test_a_key_that_came_into_a_status_since_a_step_began_stays(kind):
    class Late(Recording):
        async def get(self, path, **params) -> bytes:
            if path.endswith("/j"):
                controller.job_seen(job(kind, "5", {"late": 1}))
            return await super().get(path, **params)

    server = Late()
    controller = without_group(kind, server)
    await step(controller)
    assert "late" not in server.of("patch", "status")[0]["status"]


@FAMILIES
async def test_an_owner_that_is_gone_is_not_rejected_in_an_event(kind):
    class Gone(Recording):
        async def patch(self, path, body, **_) -> bytes:
            raise NotFound(404, path)

    server = Gone()
    controller, _ = started(kind, server)
    controller.job_seen(wrong(kind, {}))
    await controller._step(KEY)
    assert not server.calls


@FAMILIES
async def test_a_rejection_that_cannot_be_written_is_tried_again(kind):
    class Away(Recording):
        async def patch(self, path, body, **params) -> bytes:
            if not self.calls:
                self.calls.append(("refused", path, body))
                raise Unavailable(503, "away")
            return await super().patch(path, body, **params)

    server = Away()
    controller, _ = started(kind, server)
    status = {"conditions": [{"type": "Running", "status": "True", "reason": "R", "message": "m"}]}
    server.stored = wrong(kind, status)
    controller.job_seen(server.stored)
    with pytest.raises(Unavailable):
        await controller._step(KEY)
    assert cache(controller).body["status"] == {"conditions": [status["conditions"][0]]}
    assert status["conditions"][0]["status"] == "True", "what is known is what is stored"
    await controller._step(KEY)
    assert len(server.of("patch", "status")) == 1


@FAMILIES
async def test_a_group_that_cannot_be_created_is_reported_once(kind):
    class Refusing(Recording):
        async def create(self, path, body) -> bytes:
            if path.endswith("/podgroups"):
                raise Forbidden(403, "not for you")
            return await super().create(path, body)

    server = Refusing()
    controller = without_group(kind, server)
    for _ in range(2):
        await step(controller)
    (message,) = server.events("FailedCreatePodGroup")
    assert message.startswith("Error creating")


@FAMILIES
async def test_what_the_api_server_refuses_is_rejected_once(kind):
    """Else the rejection would be taken back and written again, each time the watch reports it."""

    class Refusing(Recording):
        async def create(self, path, body) -> bytes:
            if "dryRun" in path:
                raise Invalid(422, "image is wrong")
            return await super().create(path, body)

    server = Refusing()
    controller = without_group(kind, server)
    for _ in range(2):
        await step(controller)
    written = len(server.of("patch", "status"))
    for _ in range(3):
        await step(controller)
    assert len(server.of("patch", "status")) == written
