"""Which operator serves which kinds, by Leases and Deployments."""

import msgspec
import pytest

from gangsched.operators.conflicting_operators import ConflictingOperators, Deployment, Lease

NOW_S = 1_800_000_000.0
NOW = "2027-01-15T08:00:00.000000Z"
LATER = "2027-01-15T08:00:02.000000Z"
LONG_AGO = "2027-01-15T07:59:00.000000Z"
TRAINING = "1ca428e5.training-operator.kubeflow.org"
MPI = "mpioperator/mpi-operator:0.6"


def lease(name="mpi-operator", holder: str | None = "pod-1_x", renewed=NOW, **metadata) -> Lease:
    """Return a Lease of 15 s."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    names = {"name": name, "namespace": "kubeflow", "uid": f"l-{name}"} | metadata
    return msgspec.convert({"metadata": names, "spec": spec}, Lease)


def deployment(image=MPI, ready: int | None = 1, replicas=1, **metadata) -> Deployment:
    """Return a Deployment of one container."""
    pod = {"containers": [{"image": image}], "serviceAccountName": "operator"}
    spec = {"replicas": replicas, "template": {"spec": pod}}
    names = {"name": "d", "namespace": "kubeflow", "uid": f"d-{image}"} | metadata
    body = {"metadata": names, "spec": spec, "status": {"readyReplicas": ready}}
    return msgspec.convert(body, Deployment)


def told(
    seen: ConflictingOperators, *signs: Lease | Deployment, now_s=NOW_S, believed=True
) -> ConflictingOperators:
    """Tell of some signs, and believe all that there are."""
    for sign in signs:
        take = seen.lease_seen if isinstance(sign, Lease) else seen.deployment_seen
        take(sign, now_s)
    for uid in seen.unconfirmed(now_s) if believed else ():
        seen.confirm(uid)
    return seen


CASES = {
    "none": ([], set()),
    "the MPI operator": ([lease()], {"MPIJob"}),
    "Kubeflow Trainer, wherever its image is from": (
        [lease("trainer.kubeflow.org"), deployment("registry.example/ours/trainer-for-all")],
        {"TrainJob"},
    ),
    "one that is gone": ([lease(renewed=LONG_AGO)], set()),
    "one that left in order": ([lease(holder="")], set()),
    "somebody else's": ([lease("kube-scheduler"), deployment("nginx")], set()),
    "by their images": (
        [
            deployment("ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.0.0"),
            deployment("registry.k8s.io/jobset/jobset@sha256:12"),
        ],
        {"JobSet", "TrainJob"},
    ),
    "one that is not ready": ([deployment(ready=None)], set()),
    "one that is scaled away": ([deployment(replicas=0)], set()),
    "one that is being deleted": ([deployment(deletionTimestamp=NOW)], set()),
}


@pytest.mark.parametrize("case", CASES)
def test_who_runs_what(case):
    signs, kinds = CASES[case]
    assert set(told(ConflictingOperators(), *signs).kinds_run(NOW_S)) == kinds


def test_it_says_who_and_by_what():
    found = told(ConflictingOperators(), lease(TRAINING)).kinds_run(NOW_S)
    assert {"PyTorchJob", "TFJob", "MPIJob"} <= set(found)
    assert found["TFJob"] == f"the Training Operator runs them, by its Lease kubeflow/{TRAINING}"


def test_a_lease_ends_by_time_alone_and_each_renewal_puts_that_off():
    seen = told(ConflictingOperators(), lease())
    assert seen.next_expiry_s(NOW_S) == NOW_S + 15
    told(seen, lease(renewed=LATER), now_s=NOW_S + 10)
    assert seen.next_expiry_s(NOW_S + 10) == NOW_S + 25, "by our clock: its holder's may be off"
    told(seen, lease(renewed=LATER), now_s=NOW_S + 20)
    assert set(seen.kinds_run(NOW_S + 25)) == {"MPIJob"}, "a list of what was known is no renewal"
    assert not seen.kinds_run(NOW_S + 26)
    assert seen.next_expiry_s(NOW_S + 26) is None
    told(seen, lease(renewed="2027-01-15T08:00:40.000000Z"), now_s=NOW_S + 40)
    assert set(seen.kinds_run(NOW_S + 40)) == {"MPIJob"}


def test_a_lease_from_a_clock_that_is_ahead_ends_all_the_same():
    seen = told(ConflictingOperators(), lease(renewed="2027-01-15T12:00:00.000000Z"))
    assert not seen.kinds_run(NOW_S + 16)


def test_a_rollout_is_no_departure_and_what_stays_away_is_one():
    seen = told(ConflictingOperators(), deployment())
    assert seen.next_expiry_s(NOW_S) is None
    told(seen, deployment(ready=0))
    told(seen, deployment(ready=0), now_s=NOW_S + 30)
    assert set(seen.kinds_run(NOW_S + 59)) == {"MPIJob"}
    assert seen.next_expiry_s(NOW_S + 59) == NOW_S + 60
    assert not seen.kinds_run(NOW_S + 61)
    told(seen, deployment(), now_s=NOW_S + 70)
    assert set(seen.kinds_run(NOW_S + 70)) == {"MPIJob"}


@pytest.mark.parametrize("away", [deployment(replicas=0), deployment(deletionTimestamp=NOW), None])
def test_what_is_taken_away_is_gone_at_once(away):
    seen = told(ConflictingOperators(), deployment())
    if away is None:
        seen.gone(f"d-{MPI}")
    else:
        told(seen, away)
    assert not seen.kinds_run(NOW_S)


def test_a_sign_counts_only_once_its_account_is_known_to_be_an_operators():
    seen = told(ConflictingOperators(), deployment(), believed=False)
    assert not seen.kinds_run(NOW_S)
    (sign,) = seen.unconfirmed(NOW_S).values()
    assert sign.account == ("kubeflow", "operator")
    told(seen)
    assert set(seen.kinds_run(NOW_S)) == {"MPIJob"}
    told(seen, deployment(image="other/training-operator", uid=f"d-{MPI}"), believed=False)
    assert not seen.kinds_run(NOW_S), "it looks like another operator now"


def test_a_tenant_cannot_fill_the_memory_with_signs():
    signs = [deployment(namespace="tenant", uid=str(number)) for number in range(100)]
    seen = told(ConflictingOperators(), *signs, believed=False)
    assert len(seen.unconfirmed(NOW_S)) == 8
    assert set(told(seen, deployment()).kinds_run(NOW_S)) == {"MPIJob"}
