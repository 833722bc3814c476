"""MPIJobs that the MPI Operator began: their launcher is a Job, and they go on until that ends.

Their keys and their workers are the operator's. A launcher of ours beside that Job would run the
program twice, so nothing is made of such a job here; how its Job ends is how it ends.
"""

import msgspec

from gangsched.jobs.common import conditions
from gangsched.jobs.common.model import JobEvent, Json
from gangsched.jobs.common.owned_objects import condition
from gangsched.kube.client.errors import NotFound
from gangsched.kube.client.paths import named
from gangsched.operators.api_objects import clock, collection, elsewhere, owner_uid, subject_of
from gangsched.operators.controllers.job_controller import JobController
from gangsched.operators.work_queue import Key

_LOOKS_S = 10.0
_ENDS = {"Complete": "Succeeded", "Failed": "Failed"}
_LEFT = JobEvent(
    "Normal",
    "LauncherLeft",
    "The launcher is a Job that the MPI Operator made: the job goes on as it is until that ends.",
)


class MpiController(JobController):
    """The controller of MPIJobs."""

    async def _step(self, key: Key) -> None:
        cache = self._objects.get(key)
        body = cache.body if cache is not None else None
        if cache is None or body is None or await self._ours(key, body):
            await super()._step(key)

    async def _ours(self, key: Key, body: Json) -> bool:
        """Tell whether a job is to be worked on; one that is not is looked at again, later."""
        cache, metadata, status = (
            self._objects[key],
            body["metadata"],
            dict(body.get("status") or {}),
        )
        over = conditions.finished(status) or metadata.get("deletionTimestamp")
        if cache.record.own or over or elsewhere(body):
            return True
        path = named(collection("batch/v1", "Job", key[0]), f"{key[1]}-launcher")
        try:
            launcher = msgspec.json.decode(await self._client.get(path))
        except NotFound:
            launcher = None
        if launcher is None or owner_uid(launcher) != metadata["uid"]:
            cache.record.own = True
            return True
        subject = subject_of(body, self.kind.api_version, self.kind.kind)
        for theirs, ours in _ENDS.items():
            end = condition(launcher, theirs)
            if end is not None:
                now = clock().now
                status["completionTime"] = end.get("lastTransitionTime") or now
                message = f"The launcher's Job ended: {end.get('message') or theirs}"
                conditions.put(status, ours, f"MPIJob{ours}", message, now)
                written = await self._client.patch(
                    f"{named(self._collection(key[0]), key[1])}/status",
                    {"metadata": {"uid": metadata["uid"]}, "status": status},
                )
                self.job_seen(msgspec.json.decode(written))
                return False
        await self._tell(cache, subject, _LEFT)
        self._work.later(key, _LOOKS_S)
        return False
