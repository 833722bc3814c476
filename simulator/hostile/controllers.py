"""Runs our job controllers on the jobs and searches of a hostile tenant.

The API server answers only what they read: the pod of a trial, and its log.
"""

import json
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import GroupView, Observed
from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.kubeflow.reconcile import reconcile
from gangsched.operators.evaluation.pool import Evaluators
from gangsched.operators.job_kind import BlockedError, InvalidJobError, OwnerKind
from gangsched.operators.kinds import experiment, jobset, trainjob, trial
from gangsched.operators.kinds.training_job import parse
from gangsched.operators.runtime_watch import Runtimes
from simulator.hostile.jobs import FRAMEWORKS, LOGS, MESSAGE
from simulator.hostile.templates import Json

CLOCK = Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")
DOCUMENTS_MAX = 2_000
"""Objects that one reconcile of an owner may create."""

_ROUNDS = 3


class _Answers:
    """Answers with the pod of a trial's job, and its log."""

    def __init__(self, trial: Json) -> None:
        name = trial["metadata"]["name"]
        self._log = LOGS[crc32(name.encode()) % len(LOGS)].encode()
        owner = {"apiVersion": "v1", "kind": "Job", "uid": uid_of(name), "controller": True}
        metadata = {"name": name, "creationTimestamp": CLOCK.now, "ownerReferences": [owner]}
        self._pod = {"metadata": metadata, "spec": {"containers": [{"name": "c0"}]}}

    async def get(self, path: str, **asked: str) -> bytes:
        """Return a log, or a list of the pod."""
        if path.endswith("/log"):
            return self._log[: int(asked.get("limitBytes", len(self._log)))]
        return json.dumps({"items": [self._pod]}).encode()


@dataclass(slots=True)
class Controllers:
    """Reconciles owners, and records forbidden actions of the controllers."""

    evaluators: Evaluators
    violations: list[str] = field(default_factory=list)
    runtimes: Runtimes = field(default_factory=Runtimes)

    def __post_init__(self) -> None:
        """Declare the runtimes that TrainJobs may name."""
        job = {"replicas": 1, "template": {"spec": {"template": {"spec": _POD}}}}
        replicated = [{"name": "node", **job}]
        spec = {"mlPolicy": {"numNodes": 1, "torch": {}}}
        body = {"template": {"spec": {"replicatedJobs": replicated}}}
        for name in ("torch-distributed", "deepspeed-distributed"):
            head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime"}
            self.runtimes.seen({**head, "metadata": {"name": name}, "spec": {**spec, **body}})

    async def look(self, body: Json) -> list[Json]:
        """Reconcile an owner a few times while its objects change; return its PodGroups."""
        try:
            if body["kind"] in FRAMEWORKS:
                return self._framework(body)
            return await self._tree(body, self._kind(body["kind"]))
        except (InvalidJobError, BlockedError):
            return []

    def _kind(self, kind: str) -> OwnerKind:
        match kind:
            case "JobSet":
                return jobset.jobset_kind("gangsched", self.evaluators)
            case "TrainJob":
                return trainjob.trainjob_kind(self.runtimes)
            case "Trial":
                return trial.trial_kind(self.evaluators)
            case _:
                return experiment.experiment_kind(self.evaluators)

    def _framework(self, body: Json) -> list[Json]:
        job = parse(body, "gangsched", body["kind"])
        group: GroupView | None = None
        groups = []
        for _ in range(_ROUNDS):
            actions = reconcile(job, Observed(group=group), CLOCK)
            created = [*actions.documents, *actions.create_pods, *actions.create_services]
            self._check(body, created)
            if actions.put_group is None:
                break
            groups.append(actions.put_group)
            names = [
                job.pod_name(role, index)
                for role in job.roles
                for index in range(min(role.replicas, 50))
            ]
            places = dict.fromkeys(names, "n0")
            spec = actions.put_group["spec"]
            group = GroupView("g", "Reserved", assignments=places, spec=spec)
        return groups

    async def _tree(self, body: Json, kind: OwnerKind) -> list[Json]:
        parts: dict[tuple[str, str], Json] = {}
        if kind.kind == "Trial":
            name = body["metadata"]["name"]
            run = {**body["spec"]["runSpec"], "metadata": {"name": name}}
            parts[run["kind"], name] = _standing(run)
        client: Any = _Answers(body)
        groups = []
        for _ in range(_ROUNDS):
            owned = Owned(body, parts)
            if kind.read_unwatched is not None:
                owned = await kind.read_unwatched(client, owned)
            steps = kind.step(owned, CLOCK)
            self._check(body, steps.create)
            if steps.status is not None:
                body = {**body, "status": steps.status}
            for created in steps.create:
                parts[created["kind"], created["metadata"]["name"]] = _standing(created)
                if created["kind"] == "PodGroup":
                    groups.append(created)
        return groups

    # -- what no tenant may make our controllers do ------------------------------------------------

    def _check(self, body: Json, created: list[Json]) -> None:
        owner = f"{body['kind']} {body['metadata']['name']}"
        if len(created) > DOCUMENTS_MAX:
            self.violations.append(f"{owner} creates {len(created)} objects in one reconcile")
        for document in created[:DOCUMENTS_MAX]:
            if document["kind"] == "Role":
                for rule in document.get("rules", ()):
                    if "pods/exec" in rule["resources"] and not rule.get("resourceNames"):
                        self.violations.append(f"{owner}: a Role grants it all of {rule}")
            if document["kind"] == "RoleBinding":
                owned = body["metadata"]["name"]
                for subject in document.get("subjects", ()):
                    if not subject["name"].startswith(owned):
                        self.violations.append(f"{owner}: {subject['name']} gets its rights")
            namespace = document["metadata"].get("namespace", body["metadata"]["namespace"])
            if namespace != body["metadata"]["namespace"]:
                self.violations.append(f"{owner} creates an object in namespace {namespace}")


def uid_of(name: str) -> str:
    """Return the uid of an owned object."""
    return f"u-{name}"


def _standing(document: Json) -> Json:
    """Return an object after it ran: groups are placed, Jobs have failed."""
    metadata = {"uid": uid_of(document["metadata"]["name"]), "labels": {}, **document["metadata"]}
    status: Json = {}
    if document["kind"] == "PodGroup":
        status = {"phase": "Placed"}
    elif document["kind"] == "Job":
        ended = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
        status = {"conditions": [ended | {"message": MESSAGE}], "failed": 1}
    elif document["kind"] == "Trial":
        value = {"name": "loss", "latest": "0.5", "min": "0.5", "max": "0.5"}
        status = {"conditions": [{"type": "Succeeded", "status": "True"}]}
        status["observation"] = {"metrics": [value]}
    return {**document, "metadata": metadata, "status": status}


_POD = {"schedulerName": "gangsched", "containers": [{"name": "node", "image": "none"}]}
