"""The stages of a JobSet: replicated jobs that run at the same time. Each stage is a gang.

Jobs that start only after others have completed are a gang of their own: in one gang they would
wait for each other for ever. Jobs that start once others are ready run beside them: they belong to
the same gang, but do not count in its minimum.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gangsched.jobs.common.model import Json


@dataclass(frozen=True, slots=True)
class JobSetStage:
    """Replicated jobs that run at the same time; `early` ones start first."""

    group: str
    jobs: tuple[Json, ...]
    early: frozenset[str]

    @property
    def minimum(self) -> int:
        """Return how many pods start together."""
        return sum(pods_at_a_time(job) for job in self.jobs if job["name"] in self.early)


def pods_at_a_time(job: Json) -> int:
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


def stages(name: str, spec: Json) -> list[JobSetStage]:
    """Return the stages of a JobSet in the order of their first jobs.

    The gang of the largest stage has the JobSet's name, so that users find it; among equals, the
    last one.
    """
    jobs: Sequence[Json] = spec["replicatedJobs"]
    after = _completed_before(jobs)
    in_order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
    grouped: dict[frozenset[str], list[Json]] = {}
    for job in jobs:
        grouped.setdefault(after[job["name"]], []).append(job)
    largest = max(
        reversed(list(grouped.values())), key=lambda group: sum(map(pods_at_a_time, group))
    )
    result = []
    for together in grouped.values():
        early = {
            job["name"]
            for job in together
            if not any(item.get("status") == "Ready" for item in job.get("dependsOn") or [])
        }
        if in_order:
            early = {together[0]["name"]}
        gang = name if together is largest else f"{name}-{together[0]['name']}"
        result.append(JobSetStage(gang, tuple(together), frozenset(early)))
    return result


def _completed_before(jobs: Sequence[Json]) -> Mapping[str, frozenset[str]]:
    """Return the jobs that must complete before each job; a job depends only on earlier jobs."""
    before: dict[str, frozenset[str]] = {}
    for job in jobs:
        names: set[str] = set()
        for dependency in job.get("dependsOn") or []:
            names |= before.get(dependency["name"], frozenset())
            if dependency.get("status") == "Complete":
                names.add(dependency["name"])
        before[job["name"]] = frozenset(names)
    return before
