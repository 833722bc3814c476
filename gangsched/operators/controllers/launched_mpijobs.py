"""MPIJobs that the MPI Operator began: their launcher is a Job, and they go on until that ends.

Their keys and their workers are the operator's. A launcher of ours beside that Job would run the
program twice, so nothing is created for such a job here; how its Job ends is how it ends.
"""

import copy

from gangsched.jobs.common import conditions
from gangsched.jobs.common.model import JobEvent, Json
from gangsched.jobs.common.owned_objects import true_condition
from gangsched.kube.client.errors import NotFound
from gangsched.operators.api_objects import clock, owner_uid
from gangsched.operators.controllers.job_record import JobRecord
from gangsched.operators.controllers.pod_jobs import PodJobs
from gangsched.operators.controllers.reconciler import Step

_LOOKS_S = 10.0
_ENDS = {"Complete": "Succeeded", "Failed": "Failed"}
_LEFT = JobEvent(
    "Normal",
    "LauncherLeft",
    "The launcher is a Job that the MPI Operator made: the job goes on as it is until that ends.",
)


class MpiJobs(PodJobs):
    """How MPIJobs are run."""

    async def step(self, step: Step[JobRecord]) -> float | None:
        """Do what a job needs now, or follow its launcher's Job to its end."""
        if step.record.launcher_checked or conditions.is_finished(step.body.get("status") or {}):
            return await super().step(step)
        launcher = await self._launcher(step)
        if launcher is None:
            step.record.launcher_checked = True
            return await super().step(step)
        for theirs, ours in _ENDS.items():
            end = true_condition(launcher, theirs)
            if end is not None:
                await self._end(step, ours, end, theirs)
                return None
        await step.writer.emit(_LEFT)
        return _LOOKS_S

    async def _launcher(self, step: Step[JobRecord]) -> Json | None:
        """Return the Job that is the launcher of a job, if there is one."""
        try:
            name = f"{step.writer.owner.name}-launcher"
            launcher = await step.writer.read("batch/v1", ("Job", name))
        except NotFound:
            return None
        return launcher if owner_uid(launcher) == step.uid else None

    async def _end(self, step: Step[JobRecord], ours: str, end: Json, theirs: str) -> None:
        before = step.body.get("status") or {}
        status, now = copy.deepcopy(before), clock().now
        status["completionTime"] = end.get("lastTransitionTime") or now
        message = f"The launcher's Job ended: {end.get('message') or theirs}"
        conditions.put(status, ours, f"MPIJob{ours}", message, now)
        await step.writer.write_status(before, status)
