"""The objects a JobSet is made of: its Jobs, their Service and volume claims, its gangs."""

import copy
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from gangsched.jobs.common.model import GROUP_LABEL, GROUP_VERSION, Json
from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.jobset.stages import JobSetStage, pods_at_a_time, pods_each, stages

PREFIX = "jobset.sigs.k8s.io"
EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"
RESTARTS = f"{PREFIX}/restart-attempt"
FIRST_RANK = "gangsched.io/first-rank"
"""Pod label: the rank, within its role, of the pod with completion index 0 of its Job."""


@dataclass(frozen=True)
class Attempt:
    """One attempt of a JobSet; `extra_spec` are further fields of its gangs' PodGroups."""

    owned: Owned
    scheduler: str
    restarts: int
    extra_spec: Json

    @property
    def spec(self) -> Json:
        """Return the spec that the user wrote."""
        spec: Json = self.owned.body["spec"]
        return spec

    @property
    def network(self) -> Json:
        """Return the network settings of the pods."""
        return self.spec.get("network") or {}

    @property
    def domain(self) -> str:
        """Return the DNS domain of the pods, which is the name of their Service."""
        return str(self.network.get("subdomain") or self.owned.name)

    @property
    def has_dns_names(self) -> bool:
        """Return whether pods have names in DNS."""
        return bool(self.network.get("enableDNSHostnames", True))

    def is_placed_here(self, rjob: Json) -> bool:
        """Return whether gangsched places the pods of a replicated job, in a gang of the JobSet.

        Jobs that JobSet's own controller created name no PodGroup of gangsched. They keep their
        gang until they are recreated, and the other Jobs of their stage are created like them.
        """
        return self._names_our_scheduler(rjob) and not any(
            job["name"] in self._jobs_of_others
            for job in self.stage(rjob).jobs
            if self._names_our_scheduler(job)
        )

    def _names_our_scheduler(self, rjob: Json) -> bool:
        spec = rjob["template"]["spec"]["template"].get("spec") or {}
        return spec.get("schedulerName") in (None, "", self.scheduler)

    @cached_property
    def _jobs_of_others(self) -> frozenset[str]:
        """Replicated jobs of which another controller created a Job in this attempt."""
        rjobs = set()
        for job in self.owned.of("Job"):
            labels = job["metadata"].get("labels") or {}
            metadata = (job["spec"].get("template") or {}).get("metadata") or {}
            inner = metadata.get("labels") or {}
            if labels.get(RESTARTS) == str(self.restarts) and GROUP_LABEL not in inner:
                rjobs.add(labels.get(f"{PREFIX}/replicatedjob-name", ""))
        return frozenset(rjobs)

    @cached_property
    def _stages(self) -> dict[str, JobSetStage]:
        """The stage of each replicated job, by the job's name."""
        all_stages = stages(self.owned.name, self.spec)
        return {rjob["name"]: stage for stage in all_stages for rjob in stage.jobs}

    def stage(self, rjob: Json) -> JobSetStage:
        """Return the stage of a replicated job."""
        return self._stages[rjob["name"]]

    def service(self) -> Json:
        """Return the Service that gives every pod a DNS name."""
        return {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": self.domain},
            "spec": {
                "clusterIP": "None",
                "selector": {f"{PREFIX}/jobset-name": self.owned.name},
                "publishNotReadyAddresses": self.network.get("publishNotReadyAddresses", True),
            },
        }

    def claims(self) -> Iterator[tuple[Json, bool]]:
        """Yield the volume claims that Jobs share, and whether each outlives the JobSet."""
        for policy in self.spec.get("volumeClaimPolicies") or []:
            kept = (policy.get("retentionPolicy") or {}).get("whenDeleted") == "Retain"
            for template in policy.get("templates") or []:
                name = f"{template['metadata']['name']}-{self.owned.name}"
                claim = {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    "metadata": template["metadata"] | {"name": name},
                    "spec": template["spec"],
                }
                yield claim, kept

    def group(self, stage: JobSetStage) -> Json:
        """Return the PodGroup of a stage."""
        roles = []
        for rjob in stage.jobs:
            if not self.is_placed_here(rjob):
                continue
            least = pods_at_a_time(rjob) if rjob["name"] in stage.early else 0
            role = {"name": rjob["name"], "count": pods_at_a_time(rjob), "minCount": least}
            near = self._topology(rjob)
            roles.append(role | ({"topology": near} if near else {}))
        minimum = sum(int(role["minCount"]) for role in roles)
        labels = {RESTARTS: str(self.restarts), f"{PREFIX}/jobset-name": self.owned.name}
        return {
            "apiVersion": GROUP_VERSION,
            "kind": "PodGroup",
            "metadata": {"name": stage.group, "labels": labels},
            "spec": {
                "minMember": minimum,
                "roles": roles,
                **self._exclusive(stage),
                **self.extra_spec,
            },
        }

    def _topology(self, rjob: Json) -> Json:
        """Return the topology of a role: with exclusive topology, a slice for each Job."""
        level = self._level(rjob)
        return {"slices": [{"level": level, "size": pods_each(rjob)}]} if level else {}

    def _exclusive(self, stage: JobSetStage) -> Json:
        levels = {(self._level(rjob), pods_each(rjob)) for rjob in stage.jobs if self._level(rjob)}
        if not levels:
            return {}
        level = min(levels)[0]
        pods_max = max(size for _, size in levels)
        spread = [{"level": level, "maxPods": pods_max}]
        return {"topology": {"exclusive": level, "spread": spread}}

    def _level(self, rjob: Json) -> str:
        own = (rjob["template"].get("metadata") or {}).get("annotations") or {}
        whole = self.owned.body["metadata"].get("annotations") or {}
        return str(own.get(EXCLUSIVE) or whole.get(EXCLUSIVE) or "")

    def job(self, rjob: Json, index: int, *, suspended: bool) -> Json:
        """Return one Job of a replicated job."""
        spec = copy.deepcopy(rjob["template"].get("spec") or {})
        metadata = copy.deepcopy(rjob["template"].get("metadata") or {})
        name = f"{self.owned.name}-{rjob['name']}-{index}"
        marks = self._labels(rjob, index, name)
        spec["suspend"] = suspended
        spec.setdefault("completionMode", "Indexed")
        template = spec.setdefault("template", {})
        pod, inner = template.setdefault("spec", {}), template.setdefault("metadata", {})
        for holder in (metadata, inner):
            holder["labels"] = (holder.get("labels") or {}) | marks
            holder["annotations"] = (holder.get("annotations") or {}) | marks
        if level := self._level(rjob):
            metadata["annotations"][EXCLUSIVE] = level
        pod.setdefault("restartPolicy", "OnFailure")
        if self.has_dns_names:
            pod["subdomain"] = self.domain
        for policy in self.spec.get("volumeClaimPolicies") or []:
            for claim in policy.get("templates") or []:
                own = claim["metadata"]["name"]
                source = {"claimName": f"{own}-{self.owned.name}"}
                pod.setdefault("volumes", []).append({"name": own, "persistentVolumeClaim": source})
        if self.is_placed_here(rjob):
            pod["schedulerName"] = self.scheduler
            inner["labels"] |= {
                GROUP_LABEL: self.stage(rjob).group,
                "gangsched.io/role": rjob["name"],
                FIRST_RANK: str(index * pods_each(rjob)),
            }
            for key in [key for key in inner["annotations"] if key == EXCLUSIVE]:
                del inner["annotations"][key]  # the PodGroup has it, for all its pods
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {**metadata, "name": name},
            "spec": spec,
        }

    @cached_property
    def _counts(self) -> dict[str, dict[str, int]]:
        """For each replicated job: how many Jobs exist in all, and before the job's own."""
        counts: dict[str, dict[str, int]] = {}
        groups: dict[str, int] = {}
        whole = 0
        for rjob in self.spec["replicatedJobs"]:
            group, replicas = _group_of(rjob), int(rjob.get("replicas", 1))
            counts[rjob["name"]] = {"before": whole, "mates-before": groups.get(group, 0)}
            whole += replicas
            groups[group] = groups.get(group, 0) + replicas
        for rjob in self.spec["replicatedJobs"]:
            counts[rjob["name"]] |= {"all": whole, "mates": groups[_group_of(rjob)]}
        return counts

    def _labels(self, rjob: Json, index: int, name: str) -> dict[str, str]:
        """Return the labels or annotations of a Job and its pods."""
        counts = self._counts[rjob["name"]]
        key = f"{self.owned.namespace}/{name}".encode()
        labels = {
            "jobset-name": self.owned.name,
            "jobset-uid": self.owned.uid,
            "replicatedjob-name": rjob["name"],
            "replicatedjob-replicas": str(rjob.get("replicas", 1)),
            "global-replicas": str(counts["all"]),
            "restart-attempt": str(self.restarts),
            "job-index": str(index),
            "job-key": hashlib.sha1(key, usedforsecurity=False).hexdigest(),
            "job-global-index": str(counts["before"] + index),
            "group-name": _group_of(rjob),
            "group-replicas": str(counts["mates"]),
            "job-group-index": str(counts["mates-before"] + index),
        }
        if leader := self.spec.get("coordinator"):
            host = (
                f"{self.owned.name}-{leader['replicatedJob']}-"
                f"{leader.get('jobIndex', 0)}-{leader.get('podIndex', 0)}"
            )
            labels["coordinator"] = f"{host}.{self.domain}"
        return {f"{PREFIX}/{name}": value for name, value in labels.items()}


def _group_of(rjob: Json) -> str:
    return str(rjob.get("groupName") or "default")
