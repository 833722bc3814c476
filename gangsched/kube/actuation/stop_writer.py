"""Announces stops on pods: an annotation for the program in the pod, a condition for controllers.

Each pod has at most one call in flight. What is written last is what was ordered last, also if a
call had to be repeated meanwhile.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gangsched.api import names
from gangsched.api.timestamps import rfc3339_micro
from gangsched.core import orders as o
from gangsched.core.model.ids import PodName, PodUid
from gangsched.kube.client.client import STRATEGIC, KubeClient
from gangsched.kube.client.errors import Conflict, KubeError, NotFound, Throttled, Unavailable
from gangsched.kube.status.disruptions import disruption_target, no_disruption

log = logging.getLogger(__name__)

_RETRY_S = 0.5

Start = Callable[[Awaitable[None]], object]


@dataclass(frozen=True, slots=True)
class Announcement:
    """The state of one pod: the annotation, None to remove it, and the condition."""

    name: PodName
    stop_at: str | None
    condition: Mapping[str, Any]


class StopWriter:
    """Writes announced and withdrawn stops on pods."""

    def __init__(self, client: KubeClient, start: Start) -> None:
        self._client = client
        self._start = start
        self._wanted: dict[PodUid, Announcement] = {}
        """The last order for each pod with a call that is not answered yet."""

    def announce(self, order: o.AnnounceStop, reason: str) -> None:
        """Announce a stop on the pods of an order, with a reason that their readers may see."""
        condition = disruption_target(order.since_s, reason)
        for uid, name in order.pods:
            self._want(uid, Announcement(name, rfc3339_micro(order.stop_by_s), condition))

    def withdraw(self, order: o.WithdrawStop) -> None:
        """Withdraw a stop from the pods of an order."""
        condition = no_disruption(order.reason)
        for uid, name in order.pods:
            self._want(uid, Announcement(name, None, condition))

    def _want(self, uid: PodUid, wanted: Announcement) -> None:
        under_way = uid in self._wanted
        self._wanted[uid] = wanted
        if not under_way:
            self._start(self._write(uid))

    async def _write(self, uid: PodUid) -> None:
        """Write the wanted state of a pod until no other state is wanted."""
        done: Announcement | None = None
        try:
            while (wanted := self._wanted[uid]) is not done:
                if await self._written(uid, wanted):
                    done = wanted
        finally:
            del self._wanted[uid]

    async def _written(self, uid: PodUid, wanted: Announcement) -> bool:
        """Write a pod's state; return False if the call has to be repeated."""
        namespace, name = wanted.name.split("/", 1)
        path = f"/api/v1/namespaces/{namespace}/pods/{name}"
        annotations = {names.STOP_ANNOTATION: wanted.stop_at}
        try:
            # The condition is first: a controller that sees the pod end knows of the stop.
            status = {"conditions": [wanted.condition]}
            await self._client.patch(
                f"{path}/status", {"metadata": {"uid": uid}, "status": status}, STRATEGIC
            )
            await self._client.patch(path, {"metadata": {"uid": uid, "annotations": annotations}})
        except (NotFound, Conflict):
            return True  # the pod is gone, or another has its name
        except (Unavailable, Throttled):
            await asyncio.sleep(_RETRY_S)
            return False
        except KubeError as error:
            log.warning("stop of pod %s is not announced: %s", wanted.name, error)
        return True
