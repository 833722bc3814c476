"""The record of one job with a run: what the run is to show, and what the server has of it."""

from collections.abc import Callable
from dataclasses import dataclass, field

from gangsched.jobs import tracking
from gangsched.jobs.common.model import Json
from gangsched.kube.status.events import ObjectRef
from gangsched.operators.tracking.mlflow_api import FoundRun
from gangsched.operators.tracking.targets import RunTarget

_TRIES_OVER = 10
"""How often the run of a job that is over is tried to be ended or created."""

_RETRY_S, _RETRY_MAX_S = 2.0, 300.0


@dataclass(slots=True)
class TrackedJob:
    """A job, experiment or trial; `parent` is the uid of the experiment of a trial."""

    ref: ObjectRef
    target: RunTarget | None
    """None: the job gets no run."""

    parent: str
    queue: str
    created_s: float
    deadline_s: float
    """Until when its pods may wait for the run."""

    refusal: str = ""
    """Why the job gets no run, as a sentence to report; then empty."""

    known_run: str = ""
    """The id that an annotation of the job has; any user may have written it."""

    run_id: str = ""
    experiment_id: str = ""
    outcome: str = ""
    """How the job ended, or empty."""

    is_gone: bool = False
    """Whether the job was deleted."""

    announced: str = ""
    """The address in the annotation of the job."""

    announced_outcome: str = ""
    """The outcome in the annotation of the job."""

    gpu_time: tracking.JobGpuTime = field(default_factory=tracking.JobGpuTime)
    fixed_tags: dict[str, str] = field(default_factory=dict)
    stored_tags: dict[str, str] = field(default_factory=dict)
    """The tags that the server has, of those that were set or read here."""

    ended_as: str = ""
    """The outcome that the server has."""

    unsure: bool = False
    """Whether a creation without an answer may have created a second run."""

    starts_without: bool = False
    """Whether pods started without the run."""

    reported: bool = False
    """Whether an Event has said so."""

    failures: int = 0
    retry_at_s: float = 0.0
    called_s: float | None = None
    """Since when a call about the run is under way."""

    waiting: list[Callable[[], None]] = field(default_factory=list)

    @property
    def has_changes(self) -> bool:
        """Return whether the server, or the job's annotation, is not up to date."""
        if self.refusal or self.target is None:
            return bool(self.refusal)
        is_announced = self.announced and self.announced_outcome == self.outcome
        return (
            not self.run_id
            or bool(self.changed_tags())
            or self.ended_as != self.outcome
            or not (is_announced or self.is_gone)
        )

    @property
    def is_given_up(self) -> bool:
        """Return whether the server failed so often that a job that is over is dropped."""
        return bool(self.outcome) and self.failures >= _TRIES_OVER

    def is_called_for(self, now_s: float, took_s: float) -> bool:
        """Return whether a call about the run takes so many seconds already."""
        return self.called_s is not None and now_s - self.called_s >= took_s

    def changed_tags(self) -> dict[str, str]:
        """Return the tags that the server does not have yet."""
        wanted = {tracking.QUEUE: tracking.tag(self.queue)} | self.gpu_time.tags()
        if self.outcome:
            wanted[tracking.OUTCOME] = self.outcome
        return {
            key: value
            for key, value in (wanted | self.fixed_tags).items()
            if self.stored_tags.get(key) != value
        }

    def first_tags(self, parent_run: str) -> dict[str, str]:
        """Return the tags with which a run is created."""
        ref = self.ref
        tags = {
            tracking.UID: ref.uid,
            tracking.JOB: tracking.tag(f"{ref.kind} {ref.namespace}/{ref.name}"),
            "mlflow.source.name": tracking.tag(f"{ref.kind} {ref.namespace}/{ref.name}"),
            "mlflow.source.type": "JOB",
        }
        if ref.user:
            tags["mlflow.user"] = tracking.tag(ref.user)
        if parent_run:
            tags["mlflow.parentRunId"] = parent_run
        return tags | self.changed_tags()

    def restore(self, run: FoundRun) -> None:
        """Take a run that exists: what it shows of the time before this process counts."""
        self.run_id = run.id
        self.stored_tags |= run.tags
        if tracking.WAIT_S in run.tags:
            self.fixed_tags[tracking.WAIT_S] = run.tags[tracking.WAIT_S]
        self.gpu_time.past_s += tracking.seconds(run.tags.get(tracking.GPU_S, "")) or 0.0

    def failed(self, now_s: float) -> float:
        """Record a failed call; return in how many seconds to try again."""
        self.failures += 1
        pause_s: float = min(_RETRY_S * 2 ** min(self.failures, 10), _RETRY_MAX_S)
        self.retry_at_s = now_s + pause_s
        return pause_s

    def call_waiting(self) -> None:
        """Let the controllers look again that wait for the run."""
        waiting, self.waiting = self.waiting, []
        for wake in waiting:
            wake()


def annotation(body: Json, key: str) -> str:
    """Return an annotation of a job, or nothing."""
    return str((body["metadata"].get("annotations") or {}).get(key) or "")
