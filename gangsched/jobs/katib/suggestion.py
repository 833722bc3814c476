"""The Suggestion of an Experiment (Katib, kubeflow.org/v1beta1): the points that were chosen.

Katib's service writes its points there. Here it is a report: the trials are what counts.
"""

import copy
from collections.abc import Sequence
from itertools import accumulate

from gangsched.core.bounds import SUGGESTED_VALUES
from gangsched.jobs.common import conditions
from gangsched.jobs.common.model import Json
from gangsched.jobs.common.owned_objects import Owned, Steps

API_VERSION, KIND = "kubeflow.org/v1beta1", "Suggestion"
_SPEC = ("algorithm", "earlyStopping", "resumePolicy")
_KEEPS_RUNNING = "LongRunning"


def report_suggestion(
    owned: Owned, trials: Sequence[Json], experiment: Json, now: str, steps: Steps
) -> None:
    """Add to `steps` what the Suggestion of an experiment needs.

    Args:
        owned: the experiment.
        trials: its trials, and those that the step creates.
        experiment: the new status of the experiment.
        now: the time of changed conditions.
        steps: the actions of the step.

    """
    known = owned.parts.get((KIND, owned.name))
    spec = owned.body["spec"]
    requests = min(spec["parallelTrialCount"] + len(trials), spec["maxTrialCount"])
    wanted = {key: spec[key] for key in _SPEC if key in spec} | {"requests": requests}
    if known is None:
        if trials:
            metadata = {"name": owned.name}
            document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata}
            steps.companions.append(document | {"spec": wanted})
        return
    if any((known.get("spec") or {}).get(key) != value for key, value in wanted.items()):
        steps.patch.append(((KIND, owned.name), {"spec": wanted}))
    before: Json = known.get("status") or {}
    status = copy.deepcopy(before)
    status |= {"startTime": experiment["startTime"], "suggestionCount": len(trials)}
    status["suggestions"] = _assignments(trials)
    _put_conditions(status, spec, experiment, now)
    if status != before:
        steps.patch_status.append(((KIND, owned.name), status))


def _assignments(trials: Sequence[Json]) -> list[Json]:
    """Return the points of trials, as far as they fit into one object."""
    sizes = accumulate(len(trial["spec"]["parameterAssignments"]) for trial in trials)
    listed = [t for t, size in zip(trials, sizes, strict=True) if size <= SUGGESTED_VALUES.most]
    return [_assignment(trial) for trial in listed]


def _assignment(trial: Json) -> Json:
    point: Json = {
        "name": trial["metadata"]["name"],
        "parameterAssignments": trial["spec"]["parameterAssignments"],
    }
    if rules := trial["spec"].get("earlyStoppingRules"):
        point["earlyStoppingRules"] = rules
    return point


def _put_conditions(status: Json, spec: Json, experiment: Json, now: str) -> None:
    """Set the conditions as Katib does: only LongRunning goes on after the end."""
    conditions.put(status, "Created", "SuggestionCreated", "Suggestion is created", now)
    ended = conditions.is_finished(experiment) and spec["resumePolicy"] != _KEEPS_RUNNING
    if ended:
        conditions.put(status, "Succeeded", "SuggestionSucceeded", "Suggestion is succeeded", now)
        status["completionTime"] = experiment.get("completionTime", now)
    elif conditions.is_true(status, "Succeeded"):
        message = "Suggestion is restarted"
        conditions.put(status, "Succeeded", "SuggestionRestart", message, now, true=False)
        status["completionTime"] = None
    if not ended:
        conditions.put(status, "Running", "SuggestionRunning", "Suggestion is running", now)
