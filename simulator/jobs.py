"""Jobs as their users submit them, and their outcomes."""

from dataclasses import dataclass, field

from gangsched.core.model.constraints import NO_CONSTRAINTS, Constraints
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId
from gangsched.core.model.pods import MILLI, PodRequirements

GPU = "nvidia.com/gpu"


def gpus_of(needs: PodRequirements) -> float:
    """Return the GPUs that a pod requests, fractions of shared GPUs included."""
    whole = dict(needs.requests).get(GPU, 0)
    return whole if needs.share is None else whole + needs.share.milli * needs.share.devices / MILLI


@dataclass(frozen=True, slots=True)
class Part:
    """Pods of one role of a job, with equal requirements."""

    role: str
    pods: int
    needs: PodRequirements


@dataclass(frozen=True, slots=True)
class Job:
    """A job as a user submits it. `estimate_s` is the run time that the user declares.

    At least `minimum` of its `pods` (default: all) must run. When the job is interrupted, it loses
    its work since the last multiple of `checkpoint_s` (None: all work), and its pods terminate
    after `grace_s`. With `asks_s`, it asks for so many seconds before it is stopped, and its work
    is saved `save_s` after the announcement. Its pods have equal requirements unless `parts` gives
    others.
    """

    name: str
    at_s: float
    runtime_s: float
    pods: int = 1
    gpus: int = 1
    queue: str = "default"
    user: str = ""
    priority: int = 0
    estimate_s: float | None = None
    checkpoint_s: float | None = None
    minimum: int | None = None
    preemptible: bool = True
    min_runtime_s: float = 0.0
    grace_s: float = 1.0
    needs: PodRequirements | None = None
    parts: tuple[Part, ...] = ()
    constraints: Constraints = NO_CONSTRAINTS
    namespace: str = "ns"
    asks_s: float | None = None
    save_s: float = 0.0

    @property
    def id(self) -> GangId:
        """Return the id of the job's gang."""
        return GangId(f"{self.namespace}/{self.name}")

    def wants(self) -> PodRequirements:
        """Return the requirements of each pod."""
        return self.needs or PodRequirements((("cpu", 1000), (GPU, self.gpus)))

    def pieces(self) -> tuple[Part, ...]:
        """Return its pods by role and requirements."""
        return self.parts or (Part("w", self.pods, self.wants()),)

    def least(self) -> int:
        """Return how many of its pods must run at least."""
        return self.pods if self.minimum is None else self.minimum

    def gang(self, checkpoint_s: float | None = None) -> Gang:
        """Return the declaration for the scheduler, with the time of the last checkpoint."""
        least = self.least()
        return Gang(
            self.id,
            least,
            tuple(
                Role(part.role, part.pods, least if part.pods == self.pods else 0, part.needs)
                for part in self.pieces()
            ),
            queue=self.queue,
            priority=self.priority,
            created_s=self.at_s,
            expected_runtime_s=self.estimate_s,
            constraints=self.constraints,
            checkpoint_s=checkpoint_s,
            min_runtime_s=self.min_runtime_s,
            user=self.user,
            preemptible=self.preemptible,
            checkpoint_grace_s=self.asks_s,
        )

    def all_gpus(self) -> float:
        """Return the GPUs of all its pods together."""
        return sum(part.pods * gpus_of(part.needs) for part in self.pieces())


@dataclass(slots=True)
class JobOutcome:
    """The runs of a job from start to end, and what it did and lost in them."""

    job: Job
    started_s: float | None = None
    ended_s: float | None = None
    done_s: float = 0.0
    lost_gpu_s: float = 0.0
    stopped: int = 0
    runs: list[tuple[float, float]] = field(default_factory=list)

    @property
    def wait_s(self) -> float | None:
        """Return how long the job waited for its first start, None without a start."""
        return None if self.started_s is None else self.started_s - self.job.at_s
