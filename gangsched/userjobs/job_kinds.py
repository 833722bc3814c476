"""The kinds of jobs that users submit, and where each is suspended."""

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class UserJobKind:
    """A kind of job; `suspend` is the path of its field, empty if it cannot be suspended."""

    api_version: str
    kind: str
    suspend: tuple[str, ...] = ("spec", "suspend")

    @property
    def plural(self) -> str:
        """Return the name of the kind in paths."""
        return f"{self.kind.lower()}s"

    def collection(self, namespace: str | None) -> str:
        """Return the path of all its objects in a namespace, or in all with None."""
        base = "/apis" if "/" in self.api_version else "/api"
        inside = f"/namespaces/{namespace}" if namespace is not None else ""
        return f"{base}/{self.api_version}{inside}/{self.plural}"

    def is_suspended(self, body: Json) -> bool:
        """Return whether an object is suspended."""
        value: Any = body
        for key in self.suspend:
            value = value.get(key) if isinstance(value, dict) else None
        return bool(self.suspend) and value is True

    def suspension(self, *, suspended: bool) -> Json:
        """Return the merge patch that suspends or resumes an object."""
        patch: Any = suspended
        for key in reversed(self.suspend):
            patch = {key: patch}
        return patch if isinstance(patch, dict) else {}


_RUN_POLICY = ("spec", "runPolicy", "suspend")
_TRAINING_KINDS = (
    "PyTorchJob", "TFJob", "MPIJob", "XGBoostJob", "PaddleJob", "MXJob", "JAXJob",
)  # fmt: skip

USER_JOB_KINDS: tuple[UserJobKind, ...] = (
    UserJobKind("trainer.kubeflow.org/v1alpha1", "TrainJob"),
    UserJobKind("jobset.x-k8s.io/v1alpha2", "JobSet"),
    *(UserJobKind("kubeflow.org/v1", kind, _RUN_POLICY) for kind in _TRAINING_KINDS),
    UserJobKind("ray.io/v1", "RayJob"),
    UserJobKind("ray.io/v1", "RayCluster"),
    UserJobKind("batch/v1", "Job"),
    UserJobKind("apps/v1", "StatefulSet", ()),
    UserJobKind("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", ()),
)
"""The kinds, those first that own objects of others."""

BY_NAME = {(kind.api_version, kind.kind): kind for kind in USER_JOB_KINDS}

GANG_KIND = UserJobKind("gangsched.io/v1beta1", "PodGroup", ())
POD_KIND = UserJobKind("v1", "Pod", ())
EVENT_KIND = UserJobKind("v1", "Event", ())


def owner_of(body: Json) -> Json | None:
    """Return the reference to the controller of an object."""
    owners = (body.get("metadata") or {}).get("ownerReferences") or []
    return next((owner for owner in owners if owner.get("controller")), None)
