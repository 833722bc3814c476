"""Pods of Kubernetes' Jobs that we stop: neither done nor failed.

The Job controller counts every pod that ends, for any reason: one that saves its work on SIGTERM
and exits with 0 as succeeded, any other as failed. Where it stops a pod itself (a suspended Job),
it first takes its own finalizer off the pod, which it then counts as neither. So do we.
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
    """Have a Job not count a pod that is about to be stopped; one that has ended stays counted.

    Raises:
        KubeError: the API server did not answer, or does not let us.

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
                # Whatever changed since we looked may be its end.
                "resourceVersion": metadata.resource_version,
                "$deleteFromPrimitiveList/finalizers": [_FINALIZER],
            }
            await client.patch(path, {"metadata": change}, STRATEGIC)
        except (NotFound, msgspec.DecodeError):
            return  # what cannot be read is stopped all the same
        except Conflict:
            await asyncio.sleep(_RETRY_S)
            continue
        return
