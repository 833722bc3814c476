"""What the run of a job on a tracking server shows: its tags, its state, its GPU time.

A tenant may write any spec and status of its own objects, so every field may be malformed.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from gangsched.core.bounds import RUN_TAG_LETTERS
from gangsched.core.model.text import whole
from gangsched.jobs.common.model import Json
from gangsched.jobs.progress import JobEnd, time_of

UID, JOB, QUEUE, GANG, NODES = (
    f"gangsched.{name}" for name in ("job_uid", "job", "queue", "gang", "nodes")
)
WAIT_S, GPU_S, OUTCOME = (f"gangsched.{name}" for name in ("wait_s", "gpu_s", "outcome"))
PARAMETER = "gangsched.parameter."
"""Tags of a run. UID finds the run of a job again after a restart."""

DELETED = "Deleted"
"""The outcome of a job that was deleted before it ended."""

_STATUSES = {
    JobEnd.SUCCEEDED.value: "FINISHED",
    JobEnd.EARLY_STOPPED.value: "FINISHED",
    JobEnd.KILLED.value: "KILLED",
    DELETED: "KILLED",
}
_MIG = "nvidia.com/mig-"
_LARGEST_S = 1e12
_PARAMETERS = 32
_NAME_LETTERS = 100


def run_status(outcome: str) -> str:
    """Return the status of a run, as MLflow names it, by the outcome of its job."""
    return _STATUSES.get(outcome, "FAILED")


def tag(value: object) -> str:
    """Return a value as that of a tag: one line, cut to what a tag holds."""
    return " ".join(str(value).split())[: RUN_TAG_LETTERS.most]


def seconds(text: str) -> float | None:
    """Return a tag as seconds, or None if it is no such number; any user may change tags."""
    try:
        value_s = float(text[:_NAME_LETTERS])
    except ValueError:
        return None
    return value_s if 0 <= value_s < _LARGEST_S else None


def parameters(trial: Json) -> dict[str, str]:
    """Return the tags with the parameters of a trial."""
    given = _field(trial, "spec", "parameterAssignments")
    tags: dict[str, str] = {}
    for item in given if isinstance(given, list) else ():
        name, value = _field(item, "name"), _field(item, "value")
        if isinstance(name, str) and isinstance(value, str) and len(tags) < _PARAMETERS:
            tags[f"{PARAMETER}{_plain(name)}"] = tag(value)
    return tags


@dataclass(frozen=True, slots=True)
class GangHold:
    """What a gang holds, and since when; None: it holds no nodes."""

    name: str
    gpus: float
    nodes: tuple[str, ...]
    since_s: float | None


def gang_hold(group: Json, now_s: float) -> GangHold:
    """Return what the gang of a PodGroup holds."""
    metadata = group["metadata"]
    name = f"{metadata['namespace']}/{metadata['name']}"
    if _field(group, "status", "phase") != "Placed":
        return GangHold(name, 0.0, (), None)
    return GangHold(name, _gpus(group), _nodes(group), min(_placed_s(group, now_s), now_s))


@dataclass(slots=True)
class JobGpuTime:
    """The GPU time of a job: of all its gangs, as long as they hold nodes."""

    past_s: float = 0.0
    _holds: dict[str, GangHold] = field(default_factory=dict)
    _names: str = ""
    _nodes: str = ""

    def put(self, uid: str, hold: GangHold, now_s: float) -> bool:
        """Record what a gang holds, by the uid of its PodGroup; return whether tags changed."""
        known = self._holds.get(uid)
        if known is None and hold.since_s is None:
            return False
        if known is not None and (known.gpus, known.nodes) == (hold.gpus, hold.nodes):
            return False
        self.remove(uid, now_s)
        if hold.since_s is not None:
            self._holds[uid] = hold if known is None else replace(hold, since_s=now_s)
            self._names = ", ".join(sorted({gang.name for gang in self._holds.values()}))
            self._nodes = ", ".join(sorted({n for g in self._holds.values() for n in g.nodes}))
        return True

    def remove(self, uid: str, now_s: float) -> None:
        """Record that a gang holds nothing any more."""
        hold = self._holds.pop(uid, None)
        if hold is not None and hold.since_s is not None:
            self.past_s += hold.gpus * max(now_s - hold.since_s, 0.0)

    def end(self, now_s: float) -> None:
        """Record that the job is over."""
        for uid in list(self._holds):
            self.remove(uid, now_s)

    def tags(self) -> dict[str, str]:
        """Return the tags about the gangs of a job that has started."""
        if not self._names:
            return {}
        return {
            GANG: tag(self._names),
            NODES: tag(self._nodes),
            GPU_S: f"{min(self.past_s, _LARGEST_S):.1f}",
        }


def _placed_s(group: Json, otherwise_s: float) -> float:
    """Return since when a gang is placed: it may have been before this process began."""
    conditions = _field(group, "status", "conditions")
    for item in conditions if isinstance(conditions, list) else ():
        if (_field(item, "type"), _field(item, "status")) == ("Scheduled", "True"):
            return time_of(_field(item, "lastTransitionTime"), otherwise_s)
    return otherwise_s


def _nodes(group: Json) -> tuple[str, ...]:
    """Return the nodes of a gang."""
    nodes = {_field(item, "node") for item in _assignments(group)}
    return tuple(sorted(node for node in nodes if isinstance(node, str)))


def _assignments(group: Json) -> list[object]:
    given = _field(group, "status", "assignments")
    return given if isinstance(given, list) else []


def _gpus(group: Json) -> float:
    """Return the GPUs of a gang: those of all its pods, for the share of pods with a node."""
    pods, gpus = 0, 0
    roles = _field(group, "spec", "roles")
    for role in roles if isinstance(roles, list) else ():
        count = whole(str(_field(role, "count"))) or 0
        pods += count
        gpus += count * sum(_limits(role))
    placed = len(_assignments(group))
    return gpus * min(placed / pods, 1.0) if pods and placed else float(gpus)


def _limits(role: object) -> Iterator[int]:
    """Yield the GPUs of each container of a role's pods."""
    containers = _field(role, "template", "spec", "containers")
    for container in containers if isinstance(containers, list) else ():
        limits = _field(container, "resources", "limits")
        for name, amount in limits.items() if isinstance(limits, Mapping) else ():
            if str(name).endswith("/gpu") or str(name).startswith(_MIG):
                yield whole(str(amount)) or 0


def _field(value: object, *path: str) -> object:
    """Return a field of nested objects, or None."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _plain(name: str) -> str:
    """Return a name with only those characters that tags allow."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "_-. ") else "_" for c in name)[
        :_NAME_LETTERS
    ]
