"""The user of a gang: recorded by the API server, copied by our controllers only."""

import json

import pytest
from builders import POLICIES

from gangsched.api import names
from gangsched.config import SchedulerConfig
from gangsched.core.bounds import LETTERS_OF_USER
from gangsched.core.model.ids import GangId
from gangsched.kube.client.errors import Forbidden, NotFound, Unavailable
from gangsched.kube.decoding import podgroups
from gangsched.kube.decoding.external import groups as foreign
from gangsched.kube.decoding.external.owners import OWNERS
from gangsched.kube.decoding.membership import foreign_id, implicit_gang
from gangsched.kube.decoding.metadata import decode_group
from gangsched.kube.decoding.pods import decode_pod
from gangsched.kube.decoding.users import Users, user_of
from gangsched.kube.service import Scheduler
from gangsched.metrics import Metrics
from gangsched.operators.api_objects import owned_by, subject_of

USER = names.USER_ANNOTATION


def written(name: str = "x", user: str = "ann", **fields) -> bytes:
    """Return an object of the namespace ns as the API server writes it."""
    metadata = {"name": name, "namespace": "ns", "uid": name, "annotations": {USER: user}}
    metadata |= fields.pop("metadata", {})
    return json.dumps({"metadata": metadata, **fields}).encode()


def ours_pod(name: str, user: str, **labels: str) -> bytes:
    return written(
        name, user, metadata={"labels": labels}, spec={"schedulerName": "gangsched"}, status={}
    )


@pytest.fixture
def scheduler():
    """Return a scheduler that changes nothing, of a cluster with the admission policy."""
    made = Scheduler(None, SchedulerConfig(), POLICIES, Metrics(), read_only=True)
    made.users.known = True
    return made


def declared_user(scheduler: Scheduler, gang: str) -> str:
    spec = scheduler.engine.view.gangs[GangId(gang)].spec
    assert spec is not None
    return spec.user


def test_a_group_does_not_name_its_owner():
    gang, _, _ = podgroups.pod_group(
        decode_group(written(spec={"minMember": 1, "user": "bob"})), {}
    )
    assert gang.user == "ann"
    raw = json.dumps(
        {
            "metadata": {"name": "x", "namespace": "ns", "uid": "x"},
            "spec": {"minMember": 1, "user": "bob"},
        }
    )
    gang, _, _ = podgroups.pod_group(decode_group(raw.encode()), {})
    assert gang.user == ""


@pytest.mark.parametrize(
    ("written_down", "user"),
    [
        ("ann", "ann"),
        ("", ""),
        ("a" * LETTERS_OF_USER.most, "a" * LETTERS_OF_USER.most),
        ("a" * (LETTERS_OF_USER.most + 1), ""),
        ("system:serviceaccount:ns:one", "system:serviceaccounts:ns"),
        ("system:serviceaccount:ns:another", "system:serviceaccounts:ns"),
        ("system:serviceaccount:kube-system:cronjob-controller", "system:serviceaccounts:ns"),
    ],
)
def test_accounts_of_one_namespace_are_one_user(written_down, user):
    """Whoever may make service accounts would else be as many users as he likes."""
    assert user_of({USER: written_down}, "ns") == user


def test_every_kind_of_gang_has_its_user(scheduler):
    scheduler.informers.pod_groups.on_update(written("own", spec={"minMember": 1}))
    for informer in scheduler.informers.owners.groups:
        template = {"spec": {"schedulerName": "gangsched"}}
        spec = {"minMember": 1, "template": template, "headGroupSpec": {"template": template}}
        informer.on_update(written("theirs", spec=spec))
    for owned, kind in zip(scheduler.informers.owners.receivers, OWNERS, strict=True):
        spec = {"replicatedJobs": [{"name": "w", "template": {}}]}
        owned.on_update(written("theirs-0", spec=spec))
        owned.named(foreign_id("ns", kind.source, "theirs-0"))
        owned.named(foreign_id("ns", kind.source, "theirs-0-0"))
    scheduler.informers.pods.on_update(ours_pod("bare", "ann"))
    gang = {"gang": {"minCount": 1}}
    scheduler.informers.workloads.on_update(
        written("w", spec={"podGroups": [{"name": "workers", "policy": gang}]})
    )
    pod = {"schedulerName": "gangsched", "workloadRef": {"name": "w", "podGroup": "workers"}}
    scheduler.informers.pods.on_update(written("of-workload", "bob", spec=pod, status={}))
    declared = [one for one in scheduler.engine.view.gangs.values() if one.spec is not None]
    assert len(declared) >= len({kind.source for kind in (*foreign.KINDS, *OWNERS)}) + 3
    assert {one.spec.user for one in declared} == {"ann"}


def test_without_the_policy_no_user_is_known(scheduler):
    """Anybody writes what he likes where admission does not write it for him."""
    scheduler.users.known = False
    scheduler.informers.pod_groups.on_update(written("own", spec={"minMember": 1}))
    scheduler.informers.pods.on_update(ours_pod("bare", "ann"))
    assert declared_user(scheduler, "ns/own") == declared_user(scheduler, "ns/pod:bare") == ""


def test_a_group_of_pods_is_its_first_ones_users(scheduler):
    """Else whoever adds a pod has another pay, or pays for him."""
    pods = scheduler.informers.pods
    labels = {names.POD_GROUP_LABEL: "g", names.MIN_MEMBER_LABEL: "2"}
    pods.on_update(ours_pod("a", "ann", **labels))
    pods.on_update(ours_pod("b", "bob", **labels))
    assert declared_user(scheduler, "ns/g") == "ann"


def test_a_pod_does_not_declare_the_gang_of_a_group(scheduler):
    scheduler.informers.pod_groups.on_update(written("g", spec={"minMember": 3, "queue": "q"}))
    labels = {names.POD_GROUP_LABEL: "g", names.MIN_MEMBER_LABEL: "1"}
    scheduler.informers.pods.on_update(ours_pod("a", "bob", **labels))
    spec = scheduler.engine.view.gangs[GangId("ns/g")].spec
    assert (spec.min_member, spec.queue, spec.user) == (3, "q", "ann")


def test_a_bare_pod_has_a_user():
    gang = implicit_gang(decode_pod(ours_pod("a", "ann")))
    assert gang is not None
    assert gang.user == "ann"


class Api:
    """An API server that gives these answers about the admission policy, the last for ever."""

    def __init__(self, *answers: Exception | bytes) -> None:
        self.answers = list(answers)

    async def get(self, _: str) -> bytes:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_whether_users_are_known_is_asked_again(monkeypatch, caplog):
    monkeypatch.setattr("gangsched.kube.decoding.users._TRY_AGAIN_S", 0.0)
    neither = [NotFound(404, "no such policy")] * 2  # in either version
    found = Users(Api(*neither, Unavailable(503, "etcd is away"), b"{}"))
    await found.refresh()
    assert not found.known
    await found.refresh()
    assert found.known, "the API server came back"
    found._client = Api(Forbidden(403, "not yours"))
    await found.refresh()
    assert not found.known
    assert "users are not known from now on" in caplog.text


@pytest.mark.parametrize("user", ["ann", ""])
def test_owned_objects_have_the_user_of_their_owner(user):
    """Our account is believed: what it copies of a template must not name another user."""
    annotations = {USER: user} if user else {}
    metadata = {"name": "j", "namespace": "ns", "uid": "u", "annotations": annotations}
    subject = subject_of({"metadata": metadata}, "jobset.x-k8s.io/v1alpha2", "JobSet")
    forged = {"metadata": {"name": "p", "annotations": {USER: "bob", "more": "yes"}}}
    made = owned_by(forged, subject)["metadata"]
    assert made["annotations"] == annotations | {"more": "yes"}
    plain = owned_by({"metadata": {"name": "p"}}, subject)["metadata"]
    assert plain.get("annotations", {}) == annotations
    assert forged["metadata"]["annotations"][USER] == "bob", "the template itself stays"
