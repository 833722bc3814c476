"""Which kinds of job other operators run already: two controllers of one kind would fight.

An operator that leads holds a Lease of its own name; some are installed to lead without one, and
are known by the image of a Deployment that works. Sources: training-operator release-1.9,
mpi-operator v0.6, jobset v0.10, trainer v2.1: their main.go and their manifests.
"""

import json
import logging
from dataclasses import dataclass

from gangsched.core.jobs.model import Json
from gangsched.kube.client import KubeClient
from gangsched.kube.errors import KubeError
from gangsched.kube.quantities import seconds

log = logging.getLogger(__name__)

_LEASES = "/apis/coordination.k8s.io/v1/leases"
_DEPLOYMENTS = "/apis/apps/v1/deployments"
_V1 = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob")


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator as it is seen from outside: its Lease, and the last word of its image's name."""

    name: str
    lease: str
    image: str
    kinds: tuple[str, ...]


OPERATORS = (
    Operator(
        "the Training Operator", "1ca428e5.training-operator.kubeflow.org", "training-operator", _V1
    ),
    Operator("the MPI Operator", "mpi-operator", "mpi-operator", ("MPIJob",)),
    Operator("the JobSet controller", "6d4f6a47.jobset.x-k8s.io", "jobset", ("JobSet",)),
    Operator("Katib", "", "katib-controller", ("Experiment", "Trial")),
    Operator(
        "Kubeflow Trainer", "trainer.kubeflow.org", "trainer-controller-manager", ("TrainJob",)
    ),
)


def owned(leases: list[Json], deployments: list[Json], now_s: float) -> dict[str, str]:
    """Return the kinds that others run now, each with a clause that says who."""
    held = {one["metadata"]["name"]: one for one in leases if _held(one, now_s)}
    working = {
        _last_word(container["image"]): one
        for one in deployments
        if (one.get("status") or {}).get("readyReplicas")
        for container in one["spec"]["template"]["spec"]["containers"]
    }
    found: dict[str, str] = {}
    for operator in OPERATORS:
        for what, body in (
            ("Lease", held.get(operator.lease)),
            ("Deployment", working.get(operator.image)),
        ):
            if body is not None:
                where = f"{what} {body['metadata']['namespace']}/{body['metadata']['name']}"
                clause = f"{operator.name} runs it already, by its {where}"
                found |= dict.fromkeys(operator.kinds, clause)
    return found


def _held(lease: Json, now_s: float) -> bool:
    spec = lease.get("spec") or {}
    lasts_s = spec.get("leaseDurationSeconds") or 0
    return bool(spec.get("holderIdentity")) and (
        now_s <= seconds(spec.get("renewTime", "")) + lasts_s
    )


def _last_word(image: str) -> str:
    return image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[0]


async def kinds_of_others(client: KubeClient, now_s: float) -> dict[str, str]:
    """Ask the cluster which kinds others run; none, with a warning, where it does not answer."""
    try:
        leases = json.loads(await client.get(_LEASES))["items"]
        deployments = json.loads(await client.get(_DEPLOYMENTS))["items"]
    except KubeError as error:
        log.warning("whether other operators run jobs is not known: %s", error)
        return {}
    return owned(leases, deployments, now_s)
