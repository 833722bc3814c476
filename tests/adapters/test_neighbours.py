"""Who runs which kinds, read off Leases and Deployments."""

import pytest

from gangsched.operators.neighbours import owned

NOW_S = 1_800_000_000.0
NOW = "2027-01-15T08:00:00.000000Z"
LONG_AGO = "2027-01-15T07:59:00.000000Z"
TRAINING = "1ca428e5.training-operator.kubeflow.org"


def lease(name: str, holder: str | None = "pod-1", renewed: str = NOW) -> dict:
    """Return a Lease of 15 s."""
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}
    return {"metadata": {"name": name, "namespace": "kubeflow"}, "spec": spec}


def deployment(image: str, ready: int = 1) -> dict:
    """Return a Deployment of one container."""
    spec = {"template": {"spec": {"containers": [{"image": image}]}}}
    metadata = {"name": "d", "namespace": "kubeflow"}
    return {"metadata": metadata, "spec": spec, "status": {"readyReplicas": ready}}


CASES = {
    "nobody": ([], [], set()),
    "the MPI operator": ([lease("mpi-operator")], [], {"MPIJob"}),
    "Kubeflow Trainer, wherever its image is from": (
        [lease("trainer.kubeflow.org")],
        [deployment("registry.example/ours/trainer-for-all")],
        {"TrainJob"},
    ),
    "one that is gone": ([lease("mpi-operator", renewed=LONG_AGO)], [], set()),
    "one that left in order": ([lease("mpi-operator", holder="")], [], set()),
    "somebody else's": ([lease("kube-scheduler")], [deployment("nginx")], set()),
    "by their images": (
        [],
        [
            deployment("ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.0.0"),
            deployment("registry.k8s.io/jobset/jobset@sha256:12"),
        ],
        {"JobSet", "TrainJob"},
    ),
    "one that is not ready": ([], [deployment("mpioperator/mpi-operator:0.6", 0)], set()),
}


@pytest.mark.parametrize("case", CASES)
def test_who_runs_what(case):
    leases, deployments, kinds = CASES[case]
    assert set(owned(leases, deployments, NOW_S)) == kinds


def test_it_says_who_and_by_what():
    found = owned([lease(TRAINING)], [], NOW_S)
    assert {"PyTorchJob", "TFJob", "MPIJob"} <= set(found)
    assert found["TFJob"] == (
        f"the Training Operator runs it already, by its Lease kubeflow/{TRAINING}"
    )
