"""Jobs as their users submit them, and what became of them."""

from dataclasses import dataclass, field

from gangsched.core.model.constraints import NO_CONSTRAINTS, Constraints
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId
from gangsched.core.model.pods import MILLI, PodNeeds

GPU = "nvidia.com/gpu"


def gpus_of(needs: PodNeeds) -> float:
    """Return the GPUs that a pod asks for, parts of shared ones included."""
    whole = dict(needs.requests).get(GPU, 0)
    return whole if needs.share is None else whole + needs.share.milli * needs.share.devices / MILLI


@dataclass(frozen=True, slots=True)
class Part:
    """So many pods of one kind, in one role of a job."""

    role: str
    pods: int
    needs: PodNeeds


@dataclass(frozen=True, slots=True)
class Job:
    """What a user submits. Times in seconds; `estimate_s` is what the user says of `runtime_s`.

    Of `pods`, at least `minimum` (default: all) must run. Stopped, it loses what it did since the
    last multiple of `checkpoint_s` (None: everything) and leaves after `grace_s`. Its pods are
    alike, unless `parts` says otherwise.
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
    needs: PodNeeds | None = None
    parts: tuple[Part, ...] = ()
    constraints: Constraints = NO_CONSTRAINTS
    namespace: str = "ns"

    @property
    def id(self) -> GangId:
        """Return the gang's name."""
        return GangId(f"{self.namespace}/{self.name}")

    def wants(self) -> PodNeeds:
        """Return what each pod asks."""
        return self.needs or PodNeeds((("cpu", 1000), (GPU, self.gpus)))

    def pieces(self) -> tuple[Part, ...]:
        """Return its pods by kind."""
        return self.parts or (Part("w", self.pods, self.wants()),)

    def least(self) -> int:
        """Return how many of its pods must run."""
        return self.pods if self.minimum is None else self.minimum

    def gang(self, checkpoint_s: float | None = None) -> Gang:
        """Return it as it is declared to the scheduler, with when it last wrote a checkpoint."""
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
        )

    def all_gpus(self) -> float:
        """Return the GPUs of all its pods together."""
        return sum(part.pods * gpus_of(part.needs) for part in self.pieces())


@dataclass(slots=True)
class JobOutcome:
    """What became of a job: `runs` from start to end."""

    job: Job
    started_s: float | None = None
    ended_s: float | None = None
    done_s: float = 0.0
    lost_gpu_s: float = 0.0
    stopped: int = 0
    runs: list[tuple[float, float]] = field(default_factory=list)

    @property
    def wait_s(self) -> float | None:
        """Return how long it waited for its first start, None while it waits."""
        return None if self.started_s is None else self.started_s - self.job.at_s
