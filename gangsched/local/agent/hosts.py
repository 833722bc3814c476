"""The /etc/hosts of a pod: names of Services, in a file that is rewritten while pods read it."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_DOMAIN = "svc.cluster.local"


class ServiceName(NamedTuple):
    """One name that a Service gives to the address of a pod."""

    namespace: str
    host: str
    address: str


def service_names(
    services: Iterable[dict[str, Any]], pods: Iterable[tuple[dict[str, Any], str]]
) -> list[ServiceName]:
    """Return the names of pods by the Services that select them.

    A pod with its Service as subdomain has a name of its own, and that comes first: it is the name
    of its address.
    """
    by_namespace: dict[str, list[tuple[dict[str, Any], str]]] = {}
    for pod, address in pods:
        by_namespace.setdefault(pod["metadata"]["namespace"], []).append((pod, address))
    names = []
    for service in services:
        namespace, name = service["metadata"]["namespace"], service["metadata"]["name"]
        selector = (service["spec"].get("selector") or {}).items()
        if not selector:
            continue
        for pod, address in by_namespace.get(namespace, ()):
            if not selector <= (pod["metadata"].get("labels") or {}).items():
                continue
            spec = pod["spec"]
            if spec.get("subdomain") == name and spec.get("hostname"):
                names.append(ServiceName(namespace, f"{spec['hostname']}.{name}", address))
            names.append(ServiceName(namespace, name, address))
    return names


def lines_of(names: Sequence[ServiceName], namespace: str) -> list[str]:
    """Return the lines of names for a pod, those of its own namespace first.

    The name server of a cluster knows the Services of every namespace too: an operator asks the
    pods that it made. Short names are of the pod's own namespace.
    """
    lines: dict[bool, list[str]] = {True: [], False: []}
    for other, host, address in names:
        own = other == namespace
        endings = (f".{other}", f".{other}.svc", f".{other}.{_DOMAIN}")
        full = " ".join(f"{host}{ending}" for ending in endings)
        lines[own].append(f"{address} {host} {full}" if own else f"{address} {full}")
    return lines[True] + lines[False]


def write_in_place(path: Path, text: str) -> None:
    """Update a file, so that a concurrent reader never finds it empty.

    It is mounted, so it cannot be replaced by another file. Were it cut to nothing first, a name
    that a pod looks up in that moment would not be known, not even the pod's own.
    """
    data = text.encode()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        size = os.fstat(descriptor).st_size
        if os.pread(descriptor, size + 1, 0) == data:
            return
        os.pwrite(descriptor, data.ljust(size, b"\n"), 0)  # no rest of an old line is left behind
        os.ftruncate(descriptor, len(data))
    finally:
        os.close(descriptor)
