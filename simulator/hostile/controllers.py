"""What our job controllers make of a hostile tenant's jobs and searches.

Of an API server there is as much as they read: the pod of a trial, and its log.
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
"""Objects that one look at one owner may make."""

_ROUNDS = 3


class _Answers:
    """The pod that a trial's job made, and what it wrote."""

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
    """Looks at owners, and keeps what no tenant may bring them to do."""

    evaluators: Evaluators
    violations: list[str] = field(default_factory=list)
    runtimes: Runtimes = field(default_factory=Runtimes)

    def __post_init__(self) -> None:
        """Read the runtimes that TrainJobs may name."""
        job = {"replicas": 1, "template": {"spec": {"template": {"spec": _POD}}}}
        replicated = [{"name": "node", **job}]
        spec = {"mlPolicy": {"numNodes": 1, "torch": {}}}
        body = {"template": {"spec": {"replicatedJobs": replicated}}}
        for name in ("torch-distributed", "deepspeed-distributed"):
            head = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "ClusterTrainingRuntime"}
            self.runtimes.seen({**head, "metadata": {"name": name}, "spec": {**spec, **body}})

    async def look(self, body: Json) -> list[Json]:
        """Look at an owner as often as its parts change; return its PodGroups."""
        try:
            if body["kind"] in FRAMEWORKS:
                return self._framework(body)
            return await self._tree(body, self._kind(body["kind"]))
        except (InvalidJobError, BlockedError):
            return []

    def _kind(self, kind: str) -> OwnerKind:
        match kind:
            case "JobSet":
                return jobset.kind("gangsched", self.evaluators)
            case "TrainJob":
                return trainjob.kind(self.runtimes)
            case "Trial":
                return trial.kind(self.evaluators)
            case _:
                return experiment.kind(self.evaluators)

    def _framework(self, body: Json) -> list[Json]:
        job = parse(body, "gangsched", body["kind"])
        group: GroupView | None = None
        groups = []
        for _ in range(_ROUNDS):
            actions = reconcile(job, Observed(group=group), CLOCK)
            made = [*actions.documents, *actions.create_pods, *actions.create_services]
            self._judge(body, made)
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
            self._judge(body, steps.create)
            if steps.status is not None:
                body = {**body, "status": steps.status}
            for made in steps.create:
                parts[made["kind"], made["metadata"]["name"]] = _standing(made)
                if made["kind"] == "PodGroup":
                    groups.append(made)
        return groups

    # -- what no tenant may bring our controllers to do --------------------------------------------

    def _judge(self, body: Json, made: list[Json]) -> None:
        whose = f"{body['kind']} {body['metadata']['name']}"
        if len(made) > DOCUMENTS_MAX:
            self.violations.append(f"{whose} makes {len(made)} objects in one look")
        for one in made[:DOCUMENTS_MAX]:
            if one["kind"] == "Role":
                for rule in one.get("rules", ()):
                    if "pods/exec" in rule["resources"] and not rule.get("resourceNames"):
                        self.violations.append(f"{whose}: a Role lets it use all {rule}")
            if one["kind"] == "RoleBinding":
                owned = body["metadata"]["name"]
                for subject in one.get("subjects", ()):
                    if not subject["name"].startswith(owned):
                        self.violations.append(f"{whose}: {subject['name']} is given its rights")
            namespace = one["metadata"].get("namespace", body["metadata"]["namespace"])
            if namespace != body["metadata"]["namespace"]:
                self.violations.append(f"{whose} makes an object in namespace {namespace}")


def uid_of(name: str) -> str:
    """Return the uid of a part."""
    return f"u-{name}"


def _standing(made: Json) -> Json:
    """Return an object as it stands once it ran: groups have their nodes, Jobs have failed."""
    metadata = {"uid": uid_of(made["metadata"]["name"]), "labels": {}, **made["metadata"]}
    status: Json = {}
    if made["kind"] == "PodGroup":
        status = {"phase": "Placed"}
    elif made["kind"] == "Job":
        ended = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
        status = {"conditions": [ended | {"message": MESSAGE}], "failed": 1}
    elif made["kind"] == "Trial":
        value = {"name": "loss", "latest": "0.5", "min": "0.5", "max": "0.5"}
        status = {"conditions": [{"type": "Succeeded", "status": "True"}]}
        status["observation"] = {"metrics": [value]}
    return {**made, "metadata": metadata, "status": status}


_POD = {"schedulerName": "gangsched", "containers": [{"name": "node", "image": "none"}]}
