"""The logs of all pods of a job, line by line."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gangsched.api.names import INDEX_LABELS
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Invalid, NotFound, Unavailable
from gangsched.kube.client.paths import object_path
from gangsched.userjobs.finding import UserJob
from gangsched.userjobs.job_kinds import POD_KIND, Json
from gangsched.userjobs.listing import pods_of_job, read_objects

_AT_ONCE = 64
_POLL_S = 1.0


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Which lines are wanted: of which rank, the last `tail` of each pod, and those that follow."""

    follow: bool = False
    rank: int | None = None
    tail: int | None = None


Say = Callable[[str], object]


async def print_logs(
    client: KubeClient, jobs: Iterable[UserJob], options: LogOptions, say: Say
) -> int:
    """Print the lines of the pods of jobs with the names of the pods; return how many had logs.

    Raises:
        KubeError: the pods may not be read.

    """
    wanted = list(jobs)
    slots = asyncio.Semaphore(_AT_ONCE)
    if not options.follow:
        pods = [pod for pod in await _pods(client, wanted, options) if _has_log(pod)]
        texts = await asyncio.gather(*(_text(client, pod, options, slots) for pod in pods))
        for pod, text in zip(pods, texts, strict=True):  # in the order of ranks
            prefix = f"{pod['metadata']['name']}: " if len(pods) > 1 else ""
            for line in text.splitlines():
                say(prefix + line)
        return len(pods)
    followed: dict[str, asyncio.Task[None]] = {}
    while True:
        pods = await _pods(client, wanted, options)
        for pod in pods:
            uid = str(pod["metadata"]["uid"])
            if uid not in followed and _has_log(pod):
                followed[uid] = asyncio.create_task(_follow(client, pod, options, say, slots))
        if all(_is_over(pod) for pod in pods):
            break
        await asyncio.sleep(_POLL_S)
    await asyncio.gather(*followed.values())
    return len(followed)


async def _pods(client: KubeClient, jobs: list[UserJob], options: LogOptions) -> list[Json]:
    """Return the pods of jobs in the order of their ranks."""
    found: list[Json] = []
    for namespace in sorted({job.namespace for job in jobs}):
        read = await read_objects(client, namespace)
        found += [pod for job in jobs for pod in pods_of_job(read, job)]
    found.sort(key=lambda pod: (_rank(pod), str(pod["metadata"]["name"])))
    return [pod for pod in found if options.rank is None or _rank(pod) == options.rank]


def _rank(pod: Json) -> int:
    labels = pod["metadata"].get("labels") or {}
    text = next((labels[key] for key in INDEX_LABELS if key in labels), "0")
    return int(text) if text.isascii() and text.isdigit() else 0


def _has_log(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Running", "Succeeded", "Failed")


def _is_over(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _log_path(pod: Json) -> str:
    name, namespace = str(pod["metadata"]["name"]), str(pod["metadata"]["namespace"])
    return f"{object_path(POD_KIND.collection(namespace), name)}/log"


def _params(options: LogOptions) -> dict[str, str]:
    return {} if options.tail is None else {"tailLines": str(options.tail)}


async def _text(
    client: KubeClient, pod: Json, options: LogOptions, slots: asyncio.Semaphore
) -> str:
    async with slots:
        try:
            raw = await client.get(_log_path(pod), **_params(options))
        except (NotFound, Invalid, Unavailable) as error:
            return f"no log: {error}"
    return raw.decode(errors="replace")


async def _follow(
    client: KubeClient, pod: Json, options: LogOptions, say: Say, slots: asyncio.Semaphore
) -> None:
    """Print the lines of a pod as they come; two pods never share a line."""
    prefix, params = f"{pod['metadata']['name']}: ", _params(options)
    async with slots:
        try:
            async for lines in client.stream(_log_path(pod), params | {"follow": "true"}):
                for line in lines:
                    say(prefix + line.decode(errors="replace"))
        except (NotFound, Invalid, Unavailable) as error:
            say(f"{prefix}no log: {error}")
