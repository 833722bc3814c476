"""Measurements on a real control plane: the API server's counts, CPU and memory."""

import asyncio
import ssl
import urllib.request
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import psutil
from prometheus_client.parser import text_string_to_metric_families

from gangsched.local.nodes import NodeFile, NodeGroup
from gangsched.local.plane import Plane, PlaneOptions

_WRITES = ("POST", "PUT", "PATCH", "DELETE", "APPLY")
_NOT_WORK = ("leases", "tokenreviews", "subjectaccessreviews")

Write = tuple[str, str, str]
"""Verb, resource and subresource."""


def on_plane(
    name: str,
    group: NodeGroup,
    options: PlaneOptions,
    measure: Callable[[Plane], Coroutine[Any, Any, dict[str, float]]],
) -> dict[str, float]:
    """Measure on a new control plane, and remove it afterwards."""
    plane = Plane(name)
    plane.down()
    plane.up(NodeFile(nodes=(group,)), options, lambda line: print(f"  {line}", flush=True))
    try:
        return asyncio.run(measure(plane))
    finally:
        plane.down()


def writes(plane: Plane) -> Counter[Write]:
    """Return the API server's count of successful writes so far, without Leases and reviews."""
    count_of: Counter[Write] = Counter()
    for family in text_string_to_metric_families(get(plane, "/metrics")):
        if family.name != "apiserver_request":
            continue
        for sample in family.samples:
            labels = sample.labels
            resource = labels.get("resource", "")
            if (
                labels.get("verb") in _WRITES
                and labels["code"].startswith("2")
                and resource not in _NOT_WORK
            ):
                count_of[labels["verb"], resource, labels.get("subresource", "")] += int(
                    sample.value
                )
    return count_of


def get(plane: Plane, path: str) -> str:
    """Return the API server's answer to an administrator."""
    pki = plane.folder / "pki"
    context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    context.load_cert_chain(str(pki / "admin.crt"), str(pki / "admin.key"))
    server = plane.info()["server"]
    with urllib.request.urlopen(server + path, timeout=30, context=context) as answer:  # noqa: S310
        return str(answer.read().decode())


def cpu(plane: Plane) -> dict[str, tuple[float, float]]:
    """Return CPU seconds and resident MiB of each process."""
    usage = {}
    for program in plane.programs.all():
        if program.alive():
            process = psutil.Process(program.pid)
            times = process.cpu_times()
            usage[program.name] = (times.user + times.system, process.memory_info().rss / 2**20)
    return usage
