"""What the watches tell of claims, volumes and storage classes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from gangsched.kube.decoding import metadata
from gangsched.kube.informers.base import Informer, NameTracking

if TYPE_CHECKING:
    from gangsched.kube.service import Scheduler

_STORAGE = "/apis/storage.k8s.io/v1"

Take = Callable[[str, bytes], None]
Leave = Callable[[str], None]


class _Kept(NameTracking):
    """Objects that are kept by namespace and name."""

    def __init__(self, scheduler: "Scheduler", kind: str, take: Take, leave: Leave) -> None:
        super().__init__(scheduler)
        self.kind = kind
        self._take, self._leave = take, leave

    def take(self, raw: bytes) -> None:
        """Learn an object."""
        name = _name(raw)
        self.remember(raw, name)
        self._take(name, raw)

    def malformed(self, raw: bytes, message: str) -> None:
        """Take what cannot be read for what is not there."""
        self.left(_name(raw))

    def left(self, name: str) -> None:
        """Forget an object."""
        self._leave(name)


def watched(scheduler: "Scheduler") -> dict[str, tuple[str, Informer, bool]]:
    """Return what tells of volumes; whoever only asks a question may have no right to them.

    Storage classes matter to who has claims bound alone.
    """
    if scheduler.look_only:
        return {}
    volumes = scheduler.volumes
    volumes.watched = True

    def claim_gone(name: str) -> None:
        namespace, _, own = name.partition("/")
        volumes.claim_gone((namespace, own))

    found: dict[str, tuple[str, Informer, bool]] = {}

    def tell(kind: str, path: str, take: Take, leave: Leave) -> None:
        found[kind] = path, _Kept(scheduler, kind, take, leave), False

    if volumes.binds:
        tell(
            "StorageClass",
            f"{_STORAGE}/storageclasses",
            lambda _, raw: volumes.class_seen(raw),
            lambda name: volumes.class_gone(name[1:]),
        )
        tell(
            "CSIDriver",
            f"{_STORAGE}/csidrivers",
            lambda name, raw: volumes.driver_seen(name[1:], raw),
            lambda name: volumes.driver_gone(name[1:]),
        )
        tell(
            "CSIStorageCapacity",
            f"{_STORAGE}/csistoragecapacities",
            volumes.capacity_seen,
            volumes.capacity_gone,
        )
    tell(
        "PersistentVolume",
        "/api/v1/persistentvolumes",
        lambda _, raw: volumes.volume(raw),
        lambda name: volumes.volume_gone(name[1:]),
    )
    tell(
        "PersistentVolumeClaim",
        "/api/v1/persistentvolumeclaims",
        lambda _, raw: volumes.claim(raw),
        claim_gone,
    )
    return found


def _name(raw: bytes) -> str:
    """Return namespace/name of an object; without a namespace, /name."""
    namespace, name, _ = metadata.group_key(raw)
    return f"{namespace}/{name}"
