"""Informers of claims, volumes and storage classes."""

from collections.abc import Callable

from gangsched.kube.decoding.metadata import ApiObject
from gangsched.kube.informers.base import Informer, NameTracking
from gangsched.kube.volumes.eligible_nodes import Volumes
from gangsched.metrics import Metrics

_STORAGE = "/apis/storage.k8s.io/v1"

Take = Callable[[str, bytes], None]
Leave = Callable[[str], None]


class _Kept(NameTracking):
    """The informer of objects that `Volumes` keeps by namespace and name."""

    def __init__(self, metrics: Metrics, kind: str, take: Take, leave: Leave) -> None:
        super().__init__(metrics)
        self.kind = kind
        self._take, self._leave = take, leave

    def decode_and_apply(self, obj: ApiObject) -> None:
        """Give an object to `Volumes`."""
        name = _name(obj)
        self.track(obj, name)
        self._take(name, obj.raw)

    def malformed(self, raw: bytes, message: str) -> None:
        """Treat a malformed object as absent."""
        self.on_name_released(_name(ApiObject(raw)))

    def on_name_released(self, name: str) -> None:
        """Forget an object."""
        self._leave(name)


def watched(volumes: Volumes, metrics: Metrics) -> dict[str, tuple[str, Informer, bool]]:
    """Return the informers of volumes.

    Storage classes, drivers and capacities are watched only if gangsched binds claims.
    """
    volumes.watched = True

    def claim_gone(name: str) -> None:
        namespace, _, own = name.partition("/")
        volumes.claim_gone((namespace, own))

    informers: dict[str, tuple[str, Informer, bool]] = {}

    def watch(kind: str, path: str, take: Take, leave: Leave) -> None:
        informers[kind] = path, _Kept(metrics, kind, take, leave), False

    if volumes.binds:
        watch(
            "StorageClass",
            f"{_STORAGE}/storageclasses",
            lambda _, raw: volumes.class_seen(raw),
            lambda name: volumes.class_gone(name[1:]),
        )
        watch(
            "CSIDriver",
            f"{_STORAGE}/csidrivers",
            lambda name, raw: volumes.driver_seen(name[1:], raw),
            lambda name: volumes.driver_gone(name[1:]),
        )
        watch(
            "CSIStorageCapacity",
            f"{_STORAGE}/csistoragecapacities",
            volumes.capacity_seen,
            volumes.capacity_gone,
        )
    watch(
        "PersistentVolume",
        "/api/v1/persistentvolumes",
        lambda _, raw: volumes.volume(raw),
        lambda name: volumes.volume_gone(name[1:]),
    )
    watch(
        "PersistentVolumeClaim",
        "/api/v1/persistentvolumeclaims",
        lambda _, raw: volumes.claim(raw),
        claim_gone,
    )
    return informers


def _name(obj: ApiObject) -> str:
    """Return namespace/name of an object; without a namespace, /name."""
    return f"{obj.metadata.namespace}/{obj.metadata.name}"
