"""Makes a job of pods from a number of GPUs and a name."""

import re

from simulator.jobs import Job


def split(gpus: int, per_node: int) -> tuple[int, int]:
    """Return the pods and the GPUs of each: as few pods as possible, with equal numbers of GPUs."""
    if gpus <= per_node:
        return 1, gpus
    each_gets = next(size for size in range(per_node, 0, -1) if gpus % size == 0)
    return gpus // each_gets, each_gets


def job(name: str, at_s: float, runtime_s: float, gpus: int, per_node: int, **more: str) -> Job:
    """Return a job with `gpus` GPUs."""
    pods, each_gets = split(gpus, per_node)
    return Job(kubernetes_name(name), at_s, runtime_s, pods, each_gets, **more)  # type: ignore[arg-type]


def kubernetes_name(name: str) -> str:
    """Return a name that Kubernetes accepts."""
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower()).strip("-.") or "job"
