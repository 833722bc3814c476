"""Watches the pods that operators of others make, and judges whether their gangs start whole.

It is a plugin of pytest (`-p witness`) that writes a line of JSON for each thing it sees into the
file named by the variable WITNESS: which operators a test installed, how the test ended, and each
state of a pod that names gangsched. It knows nothing of how gangsched reads these pods.
"""

import importlib
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import HTTPError

from gangsched.api import names

ALIASES = frozenset({"gangsched", "volcano", "scheduler-plugins-scheduler", "kai-scheduler"})
TOGETHER_S = 5.0
"""A gang's first pods are bound within so many seconds: an extender binds one after another."""

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
    """Return what a pod belongs to: the group it names, else the object it is a part of."""
    said = (metadata.get("labels") or {}) | (metadata.get("annotations") or {})
    lws = "leaderworkerset.sigs.k8s.io"
    if f"{lws}/name" in said:
        return f"{said[f'{lws}/name']}-{said.get(f'{lws}/group-index', '0')}"
    for key in _KEYS:
        if said.get(key):
            return str(said[key])
    owners = metadata.get("ownerReferences") or [{"name": metadata["name"]}]
    return str(owners[0]["name"])


class Witness:
    """Writes down what it sees on each control plane that an operator is installed on."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("w")
        self._lock = threading.Lock()
        self._watched: set[str] = set()

    def installed(self, cluster: Any, operator: Any) -> None:
        """Take note of an operator, and watch its control plane from now on."""
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
        if spec.get("schedulerName") not in ALIASES or what not in ("ADDED", "MODIFIED"):
            return
        started = (metadata.get("annotations") or {}).get(names.MINIMUM_ANNOTATION)
        self.write(
            at=time.time(),
            uid=metadata["uid"],
            gang=f"{metadata['namespace']}/{belongs_to(metadata)}",
            bound=bool(spec.get("nodeName")),
            started_with=int(started) if started and spec.get("nodeName") else None,
        )


@dataclass(frozen=True, slots=True)
class Judgement:
    """What was seen: operators whose tests passed, gangs by how they started."""

    operators: frozenset[str]
    gangs: int
    whole: int
    singletons: int
    never: int


def judge(lines: Iterable[dict[str, Any]]) -> Judgement:
    """Judge what was seen.

    A gang starts whole if all of its pods that existed when its first pod was bound are bound soon
    after. One that starts with several pods of which each is bound for itself is a singleton.
    """
    fresh: set[str] = set()
    installed: set[str] = set()
    module = ""
    passed: dict[str, bool] = {}
    seen: dict[str, dict[str, float]] = defaultdict(dict)
    bound: dict[str, dict[str, float]] = defaultdict(dict)
    alone: dict[str, set[str]] = defaultdict(set)
    life = 0
    for line in lines:
        if "installed" in line:
            fresh.add(line["installed"])
        elif "test" in line:
            before, module = module, line["test"].partition("::")[0]
            installed = fresh | (installed if before == module else set())
            fresh = set()
            for name in installed:
                passed[name] = passed.get(name, True) and line["passed"]
            life += 1  # names come again in the next test
        else:
            gang = f"{life} {line['gang']}"
            seen[gang].setdefault(line["uid"], line["at"])
            if line["bound"]:
                bound[gang].setdefault(line["uid"], line["at"])
            if line["started_with"] == 1:
                alone[gang].add(line["uid"])
    whole = singletons = 0
    for gang, pods in bound.items():
        first_s = min(pods.values())
        there = {uid for uid, at in seen[gang].items() if at < first_s}
        whole += all(
            pods.get(uid, first_s + 2 * TOGETHER_S) <= first_s + TOGETHER_S for uid in there
        )
        singletons += len(there) > 1 and len(alone[gang] & there) > 1
    return Judgement(
        frozenset(name for name, well in passed.items() if well),
        len(bound),
        whole,
        singletons,
        len(seen) - len(bound),
    )


_witness: list[Witness] = []


def pytest_configure() -> None:
    """Begin to watch."""
    if path := os.environ.get("WITNESS"):
        _witness.append(Witness(Path(path)))
        importlib.import_module("upstream").WITNESSES.append(_witness[0].installed)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Take note of how a test ended."""
    if _witness and (report.when == "call" or report.failed):
        _witness[0].write(test=report.nodeid, passed=report.passed)
