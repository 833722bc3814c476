"""MPIJobs that the MPI Operator started: their launcher is a Job, and they run until it ends.

Their keys and workers are the operator's. A second launcher would run the program twice, so this
controller creates nothing for such a job; the job ends as its launcher's Job does.
"""

import copy

from gangsched.jobs.common import conditions
from gangsched.jobs.common.model import JobEvent, Json
from gangsched.jobs.common.owned_objects import true_condition
from gangsched.kube.client.errors import NotFound
from gangsched.operators.api_objects import clock, owner_uid
from gangsched.operators.controllers.job_record import JobRecord
from gangsched.operators.controllers.pod_jobs import PodJobs
from gangsched.operators.controllers.reconciler import ReconcileStep

_LOOKS_S = 10.0
_ENDS = {"Complete": "Succeeded", "Failed": "Failed"}
_LEFT = JobEvent(
    "Normal",
    "LauncherLeft",
    "The launcher is a Job of the MPI Operator: the job runs unchanged until that Job ends.",
)


class MpiJobs(PodJobs):
    """Runs MPIJobs: starts their pods, or follows a launcher of the MPI Operator."""

    async def step(self, step: ReconcileStep[JobRecord]) -> float | None:
        """Take the actions that a job needs now, or follow its launcher's Job to its end."""
        if step.record.launcher_checked or conditions.is_finished(step.body.get("status") or {}):
            return await super().step(step)
        launcher = await self._launcher(step)
        if launcher is None:
            step.record.launcher_checked = True
            return await super().step(step)
        for job_condition, condition_type in _ENDS.items():
            end = true_condition(launcher, job_condition)
            if end is not None:
                await self._end(step, condition_type, end, job_condition)
                return None
        await step.writer.emit(_LEFT)
        return _LOOKS_S

    async def _launcher(self, step: ReconcileStep[JobRecord]) -> Json | None:
        """Return the Job that is the launcher of a job, if there is one."""
        try:
            name = f"{step.writer.owner.name}-launcher"
            launcher = await step.writer.read("batch/v1", ("Job", name))
        except NotFound:
            return None
        return launcher if owner_uid(launcher) == step.uid else None

    async def _end(
        self, step: ReconcileStep[JobRecord], condition_type: str, end: Json, job_condition: str
    ) -> None:
        before = step.body.get("status") or {}
        status, now = copy.deepcopy(before), clock().now
        status["completionTime"] = end.get("lastTransitionTime") or now
        message = f"The launcher's Job ended: {end.get('message') or job_condition}"
        conditions.put(status, condition_type, f"MPIJob{condition_type}", message, now)
        await step.writer.write_status(before, status)
