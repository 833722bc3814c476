"""Which replicated jobs of a JobSet start together: each such stage is a gang.

Jobs that start only after others completed are a gang of their own: in one gang they would wait for
each other for ever. Jobs that start once others are ready run beside them: they belong to the same
gang, but do not count among its first pods.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gangsched.jobs.common.model import Json


@dataclass(frozen=True, slots=True)
class Stage:
    """Replicated jobs that run at the same time; `early` ones start first."""

    group: str
    jobs: tuple[Json, ...]
    early: frozenset[str]

    @property
    def minimum(self) -> int:
        """Return how many pods start together."""
        return sum(pods(job) for job in self.jobs if job["name"] in self.early)


def pods(job: Json) -> int:
    """Return how many pods of a replicated job run at a time."""
    return int(job.get("replicas", 1)) * pods_each(job)


def pods_each(job: Json) -> int:
    """Return how many pods one of its Jobs runs at a time."""
    return parallel_pods(job["template"].get("spec") or {})


def parallel_pods(spec: Json) -> int:
    """Return how many pods a batch Job of this spec runs at a time."""
    parallel = spec.get("parallelism")
    count = 1 if parallel is None else int(parallel)
    whole = spec.get("completions")
    return count if whole is None else min(count, int(whole))


def stages(name: str, spec: Json) -> list[Stage]:
    """Return the stages of a JobSet in the order of their first jobs.

    The largest, of several the last, bears the JobSet's name, so that a user finds it by that.
    """
    jobs: Sequence[Json] = spec["replicatedJobs"]
    after = _completed_before(jobs)
    in_order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    grouped: dict[frozenset[str], list[Json]] = {}
    for job in jobs:
        grouped.setdefault(after[job["name"]], []).append(job)
    largest = max(reversed(list(grouped.values())), key=lambda some: sum(map(pods, some)))
    found = []
    for some in grouped.values():
        early = {
            job["name"]
            for job in some
            if not any(one.get("status") == "Ready" for one in job.get("dependsOn") or [])
        }
        if in_order:
            early = {some[0]["name"]}
        group = name if some is largest else f"{name}-{some[0]['name']}"
        found.append(Stage(group, tuple(some), frozenset(early)))
    return found


def _completed_before(jobs: Sequence[Json]) -> Mapping[str, frozenset[str]]:
    """Return, for each job, whose completion it waits for; a job names earlier ones alone."""
    found: dict[str, frozenset[str]] = {}
    for job in jobs:
        names: set[str] = set()
        for one in job.get("dependsOn") or []:
            names |= found.get(one["name"], frozenset())
            if one.get("status") == "Complete":
                names.add(one["name"])
        found[job["name"]] = frozenset(names)
    return found
