"""Finds the kinds of job that other operators run: two controllers of one kind would conflict.

A leading operator holds a Lease of a known name. Some operators lead without a Lease; the image of
a ready Deployment shows them. Sources: training-operator release-1.9, mpi-operator v0.6, jobset
v0.10, trainer v2.1: their main.go and their manifests.

    absent -> present (Deployment ready, Lease renewed) -> lapsing (until a time) -> absent

A Deployment lapses while a rollout replaces its pods. The Lease of a dead operator is not renewed,
without any event. This module is pure: `ownership.py` watches.
"""

import math
from dataclasses import dataclass, field

import msgspec

from gangsched.kube.decoding.quantities import parse_timestamp

_V1 = ("PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "JAXJob", "MXJob")
_LAPSES_S = 60.0
"""How long a Deployment may have no ready pod before its operator counts as gone."""

_LEASE_MAX_S = 300.0
"""Upper bound for the duration of a Lease: no operator uses a longer one."""

_SIGNS_OF_NAMESPACE = 8
"""Largest number of signs of one namespace: any tenant may write Leases and Deployments."""


@dataclass(frozen=True, slots=True)
class Operator:
    """The visible traits of an operator: its Lease, and the last part of its image's name.

    Its account may write the status of its first kind, of API group `group`, in all namespaces.
    """

    name: str
    lease: str
    image: str
    group: str
    kinds: tuple[str, ...]


OPERATORS = (
    Operator(
        "the Training Operator",
        "1ca428e5.training-operator.kubeflow.org",
        "training-operator",
        "kubeflow.org",
        _V1,
    ),
    Operator("the MPI Operator", "mpi-operator", "mpi-operator", "kubeflow.org", ("MPIJob",)),
    Operator(
        "the JobSet controller",
        "6d4f6a47.jobset.x-k8s.io",
        "jobset",
        "jobset.x-k8s.io",
        ("JobSet",),
    ),
    Operator("Katib", "", "katib-controller", "kubeflow.org", ("Experiment", "Trial")),
    Operator(
        "Kubeflow Trainer",
        "trainer.kubeflow.org",
        "trainer-controller-manager",
        "trainer.kubeflow.org",
        ("TrainJob",),
    ),
)

LEASES = tuple(operator.lease for operator in OPERATORS if operator.lease)
"""Names of the Leases that are watched."""


class _Metadata(msgspec.Struct):
    name: str
    namespace: str
    uid: str = ""
    deletionTimestamp: str | None = None  # noqa: N815 -- the API's name


class _LeaseSpec(msgspec.Struct):
    holderIdentity: str | None = None  # noqa: N815
    leaseDurationSeconds: int | None = None  # noqa: N815
    renewTime: str | None = None  # noqa: N815


class Lease(msgspec.Struct):
    """The fields of a Lease that are read."""

    metadata: _Metadata
    spec: _LeaseSpec = msgspec.field(default_factory=_LeaseSpec)


class _Container(msgspec.Struct):
    image: str = ""


class _PodSpec(msgspec.Struct):
    containers: list[_Container] = []
    serviceAccountName: str = ""  # noqa: N815


class _Template(msgspec.Struct):
    spec: _PodSpec = msgspec.field(default_factory=_PodSpec)


class _DeploymentSpec(msgspec.Struct):
    template: _Template = msgspec.field(default_factory=_Template)
    replicas: int | None = None


class _DeploymentStatus(msgspec.Struct):
    readyReplicas: int | None = None  # noqa: N815


class Deployment(msgspec.Struct):
    """The fields of a Deployment that are read."""

    metadata: _Metadata
    spec: _DeploymentSpec = msgspec.field(default_factory=_DeploymentSpec)
    status: _DeploymentStatus = msgspec.field(default_factory=_DeploymentStatus)


@dataclass(frozen=True, slots=True)
class Sighting:
    """A sign that an operator runs, valid until a time.

    `account` is a service account (namespace, name), or the pod that holds a Lease with the time
    `renewed`. Any tenant may create a Deployment with an operator's image: a sign counts once the
    account is found to have an operator's rights.
    """

    operator: Operator
    where: str
    until_s: float
    account: tuple[str, str]
    renewed: str = ""


@dataclass(slots=True)
class ConflictingOperators:
    """The signs of other operators, and which of them are confirmed."""

    _signs: dict[str, Sighting] = field(default_factory=dict)
    _confirmed: set[str] = field(default_factory=set)

    def lease_seen(self, lease: Lease, now_s: float) -> None:
        """Record a Lease. Its times are the holder's: a watched renewal counts from now."""
        metadata, spec = lease.metadata, lease.spec
        operator = next((item for item in OPERATORS if item.lease == metadata.name), None)
        holder, renewed = spec.holderIdentity or "", spec.renewTime or ""
        if operator is None or not holder or not renewed:
            self.gone(metadata.uid)
            return
        known = self._signs.get(metadata.uid)
        lasts_s = min(max(float(spec.leaseDurationSeconds or 0), 0.0), _LEASE_MAX_S)
        watched = known is not None and known.renewed != renewed
        since_s = now_s if watched else min(parse_timestamp(renewed), now_s)
        until_s = known.until_s if known is not None and not watched else since_s + lasts_s
        pod = metadata.namespace, holder.partition("_")[0]
        where = f"Lease {metadata.namespace}/{metadata.name}"
        self._record(metadata.uid, Sighting(operator, where, until_s, pod, renewed))

    def deployment_seen(self, deployment: Deployment, now_s: float) -> None:
        """Record a Deployment."""
        metadata, pod = deployment.metadata, deployment.spec.template.spec
        images = {_image_name(container.image) for container in pod.containers}
        operator = next((item for item in OPERATORS if item.image in images), None)
        wanted = deployment.spec.replicas != 0 and metadata.deletionTimestamp is None
        known = self._signs.get(metadata.uid)
        if operator is None or not wanted:
            self.gone(metadata.uid)
            return
        if deployment.status.readyReplicas:
            until_s = math.inf
        elif known is not None:
            until_s = min(known.until_s, now_s + _LAPSES_S)
        else:
            return  # no pod of the operator is ready yet
        account = metadata.namespace, pod.serviceAccountName or "default"
        where = f"Deployment {metadata.namespace}/{metadata.name}"
        self._record(metadata.uid, Sighting(operator, where, until_s, account))

    def gone(self, uid: str) -> None:
        """Forget a sign."""
        self._signs.pop(uid, None)
        self._confirmed.discard(uid)

    def _record(self, uid: str, sign: Sighting) -> None:
        known = self._signs.get(uid)
        if known is None:
            namespace = sign.account[0]
            count = sum(other.account[0] == namespace for other in self._signs.values())
            if count >= _SIGNS_OF_NAMESPACE:
                return
        elif (known.account, known.operator) != (sign.account, sign.operator):
            self._confirmed.discard(uid)
        self._signs[uid] = sign

    def unconfirmed(self, now_s: float) -> dict[str, Sighting]:
        """Return the signs, by uid, that would count now and are not confirmed yet."""
        return {
            uid: sign
            for uid, sign in self._signs.items()
            if uid not in self._confirmed and now_s <= sign.until_s
        }

    def confirm(self, uid: str) -> None:
        """Count a sign from now on."""
        if uid in self._signs:
            self._confirmed.add(uid)

    def kinds_run(self, now_s: float) -> dict[str, str]:
        """Return the kinds that other operators run now, each with a clause about the operator."""
        signs = [
            sign
            for uid, sign in self._signs.items()
            if uid in self._confirmed and now_s <= sign.until_s
        ]
        kinds: dict[str, str] = {}
        for sign in sorted(signs, key=lambda item: (OPERATORS.index(item.operator), item.where)):
            clause = f"{sign.operator.name} runs them, by its {sign.where}"
            for kind in sign.operator.kinds:
                kinds.setdefault(kind, clause)
        return kinds

    def next_expiry_s(self, now_s: float) -> float | None:
        """Return when the first sign that counts now expires without a renewal, or None."""
        times = (
            sign.until_s
            for uid, sign in self._signs.items()
            if uid in self._confirmed and now_s <= sign.until_s < math.inf
        )
        return min(times, default=None)


def _image_name(image: str) -> str:
    return image.rsplit("/", 1)[-1].partition("@")[0].partition(":")[0]
