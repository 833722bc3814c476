"""Evicted pods of Kubernetes' Jobs: the Job must count them neither as succeeded nor as failed.

The Job controller counts every pod that ends: as succeeded if the pod saves its work on SIGTERM and
exits with 0, else as failed. If the controller stops a pod itself (of a suspended Job), it first
removes its finalizer from the pod, and so does not count the pod. gangsched does the same.
"""

import asyncio

import msgspec

from gangsched.core.model.ids import PodUid
from gangsched.kube.client.client import STRATEGIC, KubeClient
from gangsched.kube.client.errors import Conflict, NotFound

_FINALIZER = "batch.kubernetes.io/job-tracking"
_RETRY_S = 0.1


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    finalizers: list[str] = []


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


_decoder = msgspec.json.Decoder(_Pod)


async def uncount(client: KubeClient, path: str, uid: PodUid) -> None:
    """Remove the Job controller's finalizer from a pod that is evicted next, unless it has ended.

    Raises:
        KubeError: the API server did not answer, or denied the change.

    """
    while True:
        try:
            pod = _decoder.decode(await client.get(path))
            metadata = pod.metadata
            ended = pod.status.phase in ("Succeeded", "Failed")
            if metadata.uid != uid or ended or _FINALIZER not in metadata.finalizers:
                return
            change = {
                "uid": uid,
                # The pod may have ended since it was read.
                "resourceVersion": metadata.resource_version,
                "$deleteFromPrimitiveList/finalizers": [_FINALIZER],
            }
            await client.patch(path, {"metadata": change}, STRATEGIC)
        except (NotFound, msgspec.DecodeError):
            return  # a pod that cannot be read is evicted too
        except Conflict:
            await asyncio.sleep(_RETRY_S)
            continue
        return
