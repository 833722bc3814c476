"""Members of a gang with claims that are bound together, and the error of a failed binding."""

import asyncio
from dataclasses import dataclass, field

from gangsched.core import orders as o
from gangsched.core.model.ids import GangId, PodUid
from gangsched.kube.volumes.storage_objects import Key


class FailedError(Exception):
    """A pod cannot use a claim; `fits` is how many pods of its gang its node could take."""

    def __init__(self, order: o.Prepare, reason: str, fits: int = 0) -> None:
        super().__init__(reason)
        self.order, self.fits = order, fits


@dataclass(slots=True, eq=False)
class Pass:
    """Members of a gang with claims that are bound together, and the progress of the binding."""

    gang: GangId
    orders: dict[PodUid, o.Prepare]
    limit_s: float
    limit: asyncio.Timeout
    pods: dict[Key, list[o.Prepare]]
    awaited: tuple[o.Prepare, str]
    selected: dict[Key, str] = field(default_factory=dict)
    task: asyncio.Task[None] | None = None
    call: asyncio.Future[bytes] | None = None
