"""The checkpoints of trials that continue other trials: one volume, one folder for each trial.

    claim / EXPERIMENT / TRIAL     mounted into the containers that train

Before a trial starts, a copy of its parent's folder becomes its own. The parent keeps its folder:
several trials may continue it.
"""

import copy
from dataclasses import dataclass

from gangsched.jobs.common.model import Json
from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.katib.pod_templates import containers, pod_templates

SETTING = "suggestion_trial_dir"
"""Katib's setting: the folder of the checkpoints inside the containers."""

CHECKPOINT_CLAIM_ANNOTATION = "gangsched.io/checkpoint-claim"
"""On an Experiment: the volume claim for the checkpoints of its trials, in place of a new one."""

_CLAIM = "PersistentVolumeClaim"
_SIZE = "1Gi"
_VOLUME = "trial-checkpoints"
_ALL = "/gangsched/checkpoints"
_COPY = """\
set -e
cd "$1"
[ ! -e "$2.copied" ] || exit 0
part="$2.$HOSTNAME.part"
rm -rf "$part"
mkdir -p "$2"
cp -a "$3" "$part"
for entry in "$part"/* "$part"/.[!.]*; do
  [ ! -e "$entry" ] || mv -n "$entry" "$2/"
done
rm -rf "$part"
: > "$2.copied"
"""
"""Several pods may copy at the same time, and a pod may be retried: the first copy counts."""


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Where an experiment's trials keep their checkpoints; nowhere if `folder` is empty."""

    folder: str
    claim: str
    owned: bool
    experiment: str
    primary: str | None

    @classmethod
    def of(cls, owned: Owned) -> "Checkpoints":
        """Return the checkpoints of an experiment, by its settings and annotation."""
        algorithm = owned.body["spec"]["algorithm"]
        settings = {
            item["name"]: item["value"] for item in algorithm.get("algorithmSettings") or []
        }
        given = (owned.body["metadata"].get("annotations") or {}).get(
            CHECKPOINT_CLAIM_ANNOTATION, ""
        )
        claim = given or f"{owned.name}-{algorithm['algorithmName']}"
        primary = owned.body["spec"]["trialTemplate"].get("primaryContainerName")
        return cls(settings.get(SETTING, ""), claim, not given, owned.name, primary)

    def new_claim(self, owned: Owned) -> Json | None:
        """Return the claim to create, if the experiment needs one and has none."""
        if not self.folder or not self.owned or (_CLAIM, self.claim) in owned.parts:
            return None
        return {
            "apiVersion": "v1",
            "kind": _CLAIM,
            "metadata": {"name": self.claim},
            "spec": {
                "accessModes": ["ReadWriteMany"],
                "resources": {"requests": {"storage": _SIZE}},
            },
        }

    def mounted(self, job: Json, trial: str, parent: str) -> Json:
        """Return a trial's job with the trial's folder, which begins as a copy of the parent's."""
        if not self.folder:
            return job
        job = copy.deepcopy(job)
        for pod in pod_templates(job):
            for container in containers(pod, self.primary):
                self._mount(pod, container, trial, parent)
        return job

    def _mount(self, pod: Json, container: Json, trial: str, parent: str) -> None:
        mount = {"name": _VOLUME, "mountPath": self.folder, "subPath": f"{self.experiment}/{trial}"}
        container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
        volume = {"name": _VOLUME, "persistentVolumeClaim": {"claimName": self.claim}}
        pod["volumes"] = [*(pod.get("volumes") or []), volume]
        if parent:
            first = {
                "name": "copy-checkpoint",
                "image": container.get("image", ""),
                "command": ["sh", "-c", _COPY, "copy", _ALL, trial, parent],
                "volumeMounts": [{"name": _VOLUME, "mountPath": _ALL, "subPath": self.experiment}],
            }
            pod["initContainers"] = [first, *(pod.get("initContainers") or [])]
