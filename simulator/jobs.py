"""Jobs as their users submit them, and what became of them."""

from dataclasses import dataclass, field

from gangsched.core.model import NO_CONSTRAINTS, Constraints, GangId, NodeName, PodNeeds

GPU = "nvidia.com/gpu"


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


@dataclass(slots=True)
class Fate:
    """What became of a job: `runs` from start to end, each on the `nodes` its pods were given."""

    job: Job
    started_s: float | None = None
    ended_s: float | None = None
    done_s: float = 0.0
    lost_gpu_s: float = 0.0
    stopped: int = 0
    runs: list[tuple[float, float]] = field(default_factory=list)
    nodes: list[tuple[NodeName, ...]] = field(default_factory=list)

    @property
    def wait_s(self) -> float | None:
        """Return how long it waited for its first start, None while it waits."""
        return None if self.started_s is None else self.started_s - self.job.at_s
