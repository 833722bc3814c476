"""Watches the pods of other operators, and checks whether their gangs start whole.

This is a plugin of pytest (`-p witness`). It writes a line of JSON for each observation into the
file that the variable WITNESS names: which operators a test installed, how the test ended, and each
state of a pod that names gangsched. It does not use gangsched's decoders.
"""

import importlib
import json
import os
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from gangsched.api import names

ALIASES = frozenset({"gangsched", "volcano", "scheduler-plugins-scheduler", "kai-scheduler"})
TOGETHER_S = 5.0
"""The pods of a gang are bound within this time: an extender binds one after another."""

_KEYS = (
    names.POD_GROUP_LABEL,
    "scheduling.x-k8s.io/pod-group",
    "scheduling.k8s.io/group-name",
    "pod-group-name",
    "jobset.sigs.k8s.io/jobset-name",
    "ray.io/cluster",
    "training.kubeflow.org/job-name",
)


def belongs_to(metadata: dict[str, Any]) -> str:
    """Return the gang of a pod: the group that it names, else its owner."""
    labels = (metadata.get("labels") or {}) | (metadata.get("annotations") or {})
    lws = "leaderworkerset.sigs.k8s.io"
    if f"{lws}/name" in labels:
        return f"{labels[f'{lws}/name']}-{labels.get(f'{lws}/group-index', '0')}"
    for key in _KEYS:
        if labels.get(key):
            return str(labels[key])
    owners = metadata.get("ownerReferences") or [{"name": metadata["name"]}]
    return str(owners[0]["name"])


class Witness:
    """Records pods on each control plane on which an operator is installed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._lock = threading.Lock()
        self._watched: set[str] = set()

    def installed(self, cluster: Any, operator: Any) -> None:
        """Record an operator, and start to watch its control plane."""
        self.write(installed=operator.name.rstrip("0123456789.-"))
        kubeconfig = str(cluster.plane.kubeconfig)
        if kubeconfig not in self._watched:
            self._watched.add(kubeconfig)
            threading.Thread(target=self._watch, args=(kubeconfig,), daemon=True).start()

    def write(self, **line: Any) -> None:
        """Write a line."""
        with self._lock:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def _watch(self, kubeconfig: str) -> None:
        core = client.CoreV1Api(config.new_client_from_config(kubeconfig))
        while Path(kubeconfig).exists():
            try:
                for event in watch.Watch().stream(core.list_pod_for_all_namespaces):
                    self._pod(event["type"], event["raw_object"])
            except (ApiException, HTTPError, OSError):
                time.sleep(0.2)

    def _pod(self, what: str, body: dict[str, Any]) -> None:
        metadata, spec = body["metadata"], body["spec"]
        if spec.get("schedulerName") not in ALIASES:
            return
        started = (metadata.get("annotations") or {}).get(names.MINIMUM_ANNOTATION)
        ended = (body.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        self.write(
            at=time.time(),
            uid=metadata["uid"],
            gang=f"{metadata['namespace']}/{belongs_to(metadata)}",
            bound=bool(spec.get("nodeName")),
            gone=ended or what == "DELETED" or "deletionTimestamp" in metadata,
            started_with=int(started) if started and spec.get("nodeName") else None,
        )


@dataclass(slots=True)
class Pod:
    """When a pod was first observed, bound, and gone or done, in seconds."""

    gang: str
    seen_s: float
    bound_s: float = inf
    gone_s: float = inf
    alone: bool = False


@dataclass(frozen=True, slots=True)
class Judgement:
    """The operators with passed tests, and counts of gangs by how they started.

    A gang starts whole if the pods that exist when its first pod is bound are bound soon after. It
    is a singleton if it has several pods that are bound one by one. It is in a deadlock if it never
    starts although no other gang holds capacity.
    """

    operators: frozenset[str]
    gangs: int
    whole: int
    singletons: int
    deadlocks: int


def judge(lines: Iterable[dict[str, Any]]) -> Judgement:
    """Return the counts for the lines of a run."""
    notes = list(lines)
    pods = _pods(notes)
    gangs: dict[str, list[Pod]] = {}
    for pod in pods:
        gangs.setdefault(pod.gang, []).append(pod)
    started = [members for members in gangs.values() if any(pod.bound_s < inf for pod in members)]
    first = [_first(members) for members in started]
    return Judgement(
        _passed(notes),
        len(started),
        sum(
            all(pod.bound_s <= since_s + TOGETHER_S for pod in present)
            for since_s, present in first
        ),
        sum(sum(pod.alone for pod in present) > 1 for _, present in first),
        sum(_deadlock(members, pods) for members in gangs.values() if members not in started),
    )


def _passed(notes: list[dict[str, Any]]) -> frozenset[str]:
    """Return the operators for which every test passed while they were installed."""
    fresh: set[str] = set()
    installed: set[str] = set()
    passed: dict[str, bool] = {}
    module = ""
    for line in notes:
        if "installed" in line:
            fresh.add(line["installed"])
        elif "test" in line:
            before, module = module, line["test"].partition("::")[0]
            installed = fresh | (installed if before == module else set())
            fresh = set()
            for name in installed:
                passed[name] = passed.get(name, True) and line["passed"]
    return frozenset(name for name, well in passed.items() if well)


def _pods(notes: list[dict[str, Any]]) -> list[Pod]:
    """Return all pods; gangs of different tests may have the same name."""
    pods: dict[str, Pod] = {}
    tests = 0
    for line in notes:
        tests += "test" in line
        if "uid" not in line:
            continue
        pod = pods.setdefault(line["uid"], Pod(f"{tests} {line['gang']}", line["at"]))
        if line["bound"]:
            pod.bound_s = min(pod.bound_s, line["at"])
        if line["gone"]:
            pod.gone_s = min(pod.gone_s, line["at"])
        pod.alone = pod.alone or line["started_with"] == 1
    return list(pods.values())


def _first(gang: list[Pod]) -> tuple[float, list[Pod]]:
    """Return when the first pod of a gang was bound, and the pods that existed before that."""
    since_s = min(pod.bound_s for pod in gang)
    return since_s, [pod for pod in gang if pod.seen_s < since_s and pod.gone_s > since_s]


def _deadlock(gang: list[Pod], pods: list[Pod]) -> bool:
    """Return whether a gang never started although no other gang held capacity for long."""
    end_s = min(pod.gone_s for pod in gang)
    free_s = max(pod.seen_s for pod in gang)
    for pod in sorted(pods, key=lambda pod: pod.bound_s):
        if pod.bound_s - free_s > TOGETHER_S or free_s > end_s:
            break
        free_s = max(free_s, min(pod.gone_s, end_s)) if pod.bound_s < inf else free_s
    return end_s - free_s > TOGETHER_S


_witness: list[Witness] = []


def pytest_configure() -> None:
    """Start to watch."""
    if path := os.environ.get("WITNESS"):
        _witness.append(Witness(Path(path)))
        importlib.import_module("upstream").WITNESSES.append(_witness[0].installed)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record how a test ended."""
    if _witness and (report.when == "call" or report.failed):
        _witness[0].write(test=report.nodeid, passed=report.passed)
