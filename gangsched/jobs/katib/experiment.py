"""The reconcile of an Experiment (Katib, kubeflow.org/v1beta1): trials until its end."""

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Literal

from gangsched.core.bounds import TRIAL_BYTES, TRIALS
from gangsched.core.model.text import whole
from gangsched.jobs.common import conditions
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import JobEvent, Json
from gangsched.jobs.common.owned_objects import Owned, Ref, Steps
from gangsched.jobs.katib import metrics, suggestion
from gangsched.jobs.katib.checkpoints import Checkpoints
from gangsched.jobs.katib.status import KatibStep
from gangsched.jobs.katib.trial import EXPERIMENT_LABEL, FIRST_STEPS, KILL, trial_state

API_VERSION, KIND = "kubeflow.org/v1beta1", "Experiment"
_AT_ONCE = 16
"""Largest number of points in one call: a search takes time, and other experiments wait."""

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_NAME_LENGTH = 8
_PLACEHOLDER = re.compile(r"\$\{(trialParameters|trialSpec)\.([^}$]+)\}")
"""Names have no `$`: the search for `}` ends at the next placeholder, so it is linear."""

PLAIN = "\0"
"""Begins a text of a template that is a placeholder without quotes: its value may be a number."""

_ENOUGH, _START = "min_trials_required", "start_step"
_MEDIAN = {_ENOUGH: 3, _START: 4}
"""Defaults of the medianstop rule."""

GENERATIONS = ("hyperband", "pbt")
"""Algorithms with generations of trials. A trial may continue one of an earlier generation."""

GENERATION_LABEL = "pbt.suggestion.katib.kubeflow.org/generation"
PARENT_LABEL = "pbt.suggestion.katib.kubeflow.org/parent"
_NO_LABELS: Mapping[str, str] = MappingProxyType({})

Assignments = dict[str, str]
"""Values of parameters, by the parameters' names."""


@dataclass(frozen=True, slots=True)
class TriedPoint:
    """A point of the search space and its trial; `value` is None if the trial has none (yet)."""

    assignments: Assignments
    state: Literal["running", "done", "failed"]
    value: float | None = None
    name: str = ""
    generation: int = 0
    parent: str = ""


@dataclass(frozen=True, slots=True)
class SuggestedPoint:
    """A point to try next; its trial continues the training of its `parent`, if it has one."""

    assignments: Assignments
    generation: int = 0
    parent: str = ""


class SearchError(Exception):
    """The search will find no point; the message is a clause with the reason."""


Suggest = Callable[[Json, list[TriedPoint], int, str], list[SuggestedPoint]]
"""Returns the next points, given a spec, the tried points, a count and the experiment's uid.

Fewer points than requested mean that the search has no more. Equal calls return equal points. A
call may raise SearchError.
"""

_COUNT_FIELDS = {
    "Succeeded": "trialsSucceeded",
    "Failed": "trialsFailed",
    "Killed": "trialsKilled",
    "MetricsUnavailable": "trialsMetricsUnavailable",
    "EarlyStopped": "trialsEarlyStopped",
    "Running": "trialsRunning",
    "Pending": "trialsPending",
}
_LIST_FIELDS = {
    "Succeeded": "succeededTrialList",
    "Failed": "failedTrialList",
    "Killed": "killedTrialList",
    "MetricsUnavailable": "metricsUnavailableTrialList",
    "EarlyStopped": "earlyStoppedTrialList",
    "Running": "runningTrialList",
    "Pending": "pendingTrialList",
}
_ACTIVE = ("Running", "Pending")
_LOST = ("Failed", "MetricsUnavailable")


def reconcile(owned: Owned, suggest: Suggest, clock: Clock) -> Steps:
    """Return what an experiment needs now; its spec has every default."""
    return _Experiment(owned, suggest, clock).steps()


class _Experiment(KatibStep):
    """One call of the reconcile."""

    def __init__(self, owned: Owned, suggest: Suggest, clock: Clock) -> None:
        super().__init__(owned, clock)
        self.suggest = suggest
        self.trials = owned.of("Trial")
        self.by_state: dict[str, list[Json]] = {kind: [] for kind in _COUNT_FIELDS}
        for trial in self.trials:
            self.by_state[trial_state(trial)].append(trial)
        self.names = {trial["metadata"]["name"] for trial in self.trials}
        self.metric = self.spec["objective"]["objectiveMetricName"]
        self.strategy = metrics.strategies(self.spec["objective"])[self.metric]
        self.checkpoints = Checkpoints.of(owned)

    def steps(self) -> Steps:
        self._act()
        trials = self.trials + [one for one in self.result.create if one["kind"] == "Trial"]
        suggestion.report_suggestion(self.owned, trials, self.status, self.clock.now, self.result)
        return self.finish()

    def _act(self) -> None:
        """Set the status, and create and stop trials."""
        self.set_condition("Created", "ExperimentCreated", "Experiment is created")
        if conditions.is_finished(self.status) and not self._restarts():
            self._count()
            self._stop_running_trials()
            return
        self._count()
        ended = self._ended() or self._continue()
        if ended is not None:
            self._end(*ended)
        elif self.trials or self.result.create:
            self.set_condition("Running", "ExperimentRunning", "Experiment is running")

    # -- state --------------------------------------------------------------------------------

    def _count(self) -> None:
        self.status["trials"] = len(self.trials)
        for kind, trials in self.by_state.items():
            for key, value in (
                (_COUNT_FIELDS[kind], len(trials)),
                (_LIST_FIELDS[kind], [trial["metadata"]["name"] for trial in trials]),
            ):
                if value:
                    self.status[key] = value
                else:
                    self.status.pop(key, None)
        best = self._best
        if best is not None:
            self.status["currentOptimalTrial"] = {
                "bestTrialName": best["metadata"]["name"],
                "parameterAssignments": best["spec"]["parameterAssignments"],
                "observation": best["status"]["observation"],
            }

    def _value(self, trial: Json) -> float | None:
        observed = (trial.get("status") or {}).get("observation") or {}
        return metrics.value_of(observed, self.metric, self.strategy)

    @cached_property
    def _best(self) -> Json | None:
        """The trial with the best value so far."""
        sign = 1.0 if self.spec["objective"]["type"] == "maximize" else -1.0
        ended = self.by_state["Succeeded"] + self.by_state["EarlyStopped"]
        valued = [(value, trial) for trial in ended if (value := self._value(trial)) is not None]
        return max(valued, key=lambda pair: sign * pair[0])[1] if valued else None

    def _ended(self) -> tuple[str, str, str] | None:
        """Return the last condition, its reason and its message, if the experiment is over."""
        objective, most = self.spec["objective"], self.spec.get("maxTrialCount")
        best = self._best
        value = self._value(best) if best is not None else None
        goal = objective.get("goal")
        if value is not None and goal is not None:
            reached = value >= goal if objective["type"] == "maximize" else value <= goal
            if reached:
                message = "Experiment has succeeded because Objective goal has reached"
                return "Succeeded", "ExperimentGoalReached", message
        lost = sum(len(self.by_state[kind]) for kind in _LOST)
        if lost and lost >= self.spec.get("maxFailedTrialCount", lost + 1):
            message = "Experiment has failed because max failed count has reached"
            return "Failed", "ExperimentFailed", message
        over = len(self.trials) - sum(len(self.by_state[kind]) for kind in _ACTIVE)
        if most is not None and over >= most:
            message = "Experiment has succeeded because max trial count has reached"
            return "Succeeded", "ExperimentMaxTrialsReached", message
        return None

    def _continue(self) -> tuple[str, str, str] | None:
        """Create the trials that are wanted now; if the search has no more, return the end."""
        try:
            exhausted = self._create_trials()
        except SearchError as error:
            return "Failed", "ExperimentFailed", f"Experiment has failed because {error}"
        if not exhausted or self.by_state["Pending"] + self.by_state["Running"]:
            return None
        message = "Experiment has succeeded because suggestion service has reached the end"
        return "Succeeded", "ExperimentSuggestionEndReached", message

    def _restarts(self) -> bool:
        """Restart the experiment if its spec wants more trials now and its policy allows it."""
        ended = conditions.get(self.status, "Succeeded")
        wanted = self.spec.get("maxTrialCount")
        if (
            ended is None
            or ended["reason"] != "ExperimentMaxTrialsReached"
            or self.spec["resumePolicy"] == "Never"
            or (wanted is not None and wanted <= len(self.trials))
        ):
            return False
        put, now = conditions.put, self.clock.now
        put(
            self.status,
            "Succeeded",
            "ExperimentRestarting",
            "Experiment is restarted",
            now,
            true=False,
        )
        put(self.status, "Restarting", "ExperimentRestarting", "Experiment is restarted", now)
        self.status.pop("completionTime", None)
        return True

    # -- trials -------------------------------------------------------------------------------

    def _create_trials(self) -> bool:
        """Create the trials that are wanted now; return whether the search has no more points."""
        active = sum(len(self.by_state[kind]) for kind in _ACTIVE)
        wanted = min(self.spec["parallelTrialCount"] - active, _AT_ONCE)
        if self.spec.get("maxTrialCount") is not None:
            wanted = min(wanted, self.spec["maxTrialCount"] - len(self.trials))
        if wanted <= 0:
            return False
        tried = [self._tried_point(trial) for trial in self.trials]
        points = self.suggest(self.spec, tried, wanted, self.owned.uid)
        if points and (claim := self.checkpoints.new_claim(self.owned)) is not None:
            self.result.create.append(claim)
        for point in points:
            self.result.create.append(self._trial(point))
        return not points

    def _tried_point(self, trial: Json) -> TriedPoint:
        assignments = trial["spec"]["parameterAssignments"]
        point = {item["name"]: item["value"] for item in assignments}
        metadata = trial["metadata"]
        labels = metadata.get("labels") or {}
        number = whole(labels.get(GENERATION_LABEL, ""), TRIALS.most) or 0
        origin = metadata["name"], number, labels.get(PARENT_LABEL, "")
        if trial_state(trial) in _ACTIVE:
            return TriedPoint(point, "running", None, *origin)
        value = self._value(trial)
        return TriedPoint(point, "failed" if value is None else "done", value, *origin)

    def _trial(self, suggested: SuggestedPoint) -> Json:
        template = self.spec["trialTemplate"]
        name, point = self._name(), suggested.assignments
        labels = {EXPERIMENT_LABEL: self.owned.name} | self._origin_labels(suggested)
        run = fill_template(template, point, name, self.owned.namespace, labels)
        run = self.checkpoints.mounted(run, name, suggested.parent)
        document: Json = {
            "apiVersion": API_VERSION,
            "kind": "Trial",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "objective": self.spec["objective"],
                "parameterAssignments": [{"name": k, "value": v} for k, v in point.items()],
                "runSpec": run,
                "retainRun": bool(template.get("retain")),
            },
        }
        copied = (
            "primaryPodLabels",
            "primaryContainerName",
            "successCondition",
            "failureCondition",
        )
        document["spec"] |= {key: template[key] for key in copied if template.get(key)}
        collector = dict(self.spec.get("metricsCollectorSpec") or {})
        if (collector.get("collector") or {}).get("kind") == "StdOut":
            # It is the default. Katib's client would read the log of a container that Katib adds
            # for it; here the log is that of the primary container.
            del collector["collector"]
        if collector:
            document["spec"]["metricsCollector"] = collector
        if self.spec.get("earlyStopping"):
            settings = _settings(self.spec["earlyStopping"])
            document["metadata"]["annotations"] = {FIRST_STEPS: str(settings[_START])}
            document["spec"]["earlyStoppingRules"] = self._rules(settings)
        return document

    def _origin_labels(self, suggested: SuggestedPoint) -> dict[str, str]:
        """Return Katib's labels of a trial that belongs to a generation."""
        if self.spec["algorithm"]["algorithmName"] not in GENERATIONS:
            return {}
        labels = {GENERATION_LABEL: str(suggested.generation)}
        return labels | ({PARENT_LABEL: suggested.parent} if suggested.parent else {})

    def _rules(self, settings: Mapping[str, int]) -> list[Json]:
        """Return the rule of medianstop: the mean of other trials' values after their first steps.

        Source: katib pkg/earlystopping/v1beta1/medianstop/service.py.
        """
        means = [
            float(mean)
            for trial in self.by_state["Succeeded"]
            if (mean := (trial.get("status") or {}).get("firstStepsMean")) is not None
        ]
        if len(means) < settings[_ENOUGH]:
            return []
        objective = self.spec["objective"]
        rule: Json = {
            "name": objective["objectiveMetricName"],
            "value": repr(sum(means) / len(means)),
            "comparison": "less" if objective["type"] == "maximize" else "greater",
            "startStep": settings[_START],
        }
        return [rule]

    def _name(self) -> str:
        """Return the next free name; a repeated call returns the same."""
        number = len(self.names)
        while True:
            digest = hashlib.sha256(f"{self.owned.uid}/{number}".encode()).digest()
            letters = "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:_NAME_LENGTH])
            if (name := f"{self.owned.name}-{letters}") not in self.names:
                self.names.add(name)
                return name
            number += 1

    def _stop_running_trials(self) -> None:
        """Stop running trials: their results are not used (katib#2061)."""
        for trial in (trial for kind in _ACTIVE for trial in self.by_state[kind]):
            if KILL not in (trial["metadata"].get("annotations") or {}):
                ref: Ref = ("Trial", trial["metadata"]["name"])
                mark = {KILL: "its experiment is over"}
                self.result.patch.append((ref, {"metadata": {"annotations": mark}}))

    def _end(self, kind: str, reason: str, message: str) -> None:
        self.set_condition(kind, reason, message)
        self.status["completionTime"] = self.clock.now
        self.result.create.clear()
        self.result.events.append(JobEvent("Normal", reason, message))
        self._stop_running_trials()


def _settings(algorithm: Json) -> dict[str, int]:
    settings = algorithm.get("algorithmSettings") or []
    return _MEDIAN | {item["name"]: int(item["value"]) for item in settings}


class TrialTooLargeError(Exception):
    """A trial's job would be larger than an object may be."""


def fill_template(
    template: Json,
    point: Assignments,
    name: str,
    namespace: str,
    origin: Mapping[str, str] = _NO_LABELS,
) -> Json:
    """Return a trial's job: the template with its placeholders `${...}` replaced.

    Placeholders may name labels of the template, and those of the trial that are in `origin`.

    Raises:
        KeyError: a placeholder names a parameter or field that does not exist.
        TooLargeError: the replacements are too long together.

    """
    listed = template.get("trialParameters") or []
    named = {item["name"]: point.get(item["reference"], item["reference"]) for item in listed}
    spec: Json = template["trialSpec"]
    metadata = spec.get("metadata") or {}
    fields = {"Name": name, "Namespace": namespace}
    fields |= {"Kind": spec["kind"], "APIVersion": spec["apiVersion"]}
    fields |= {
        f"Labels[{label}]": origin.get(label, "") for label in (GENERATION_LABEL, PARENT_LABEL)
    }
    for key in ("Annotations", "Labels"):
        fields |= {f"{key}[{k}]": v for k, v in (metadata.get(key.lower()) or {}).items()}
    left = TRIAL_BYTES.most

    def charged(value: str) -> str:
        nonlocal left
        left -= len(value)
        if left < 0:
            raise TrialTooLargeError
        return value

    # A parameter may refer to a field of the trial: its reference is a placeholder itself.
    named = {
        key: _PLACEHOLDER.sub(lambda match: charged(fields[match[2]]), value)
        for key, value in named.items()
    }

    def replacement(match: "re.Match[str]") -> str:
        return charged((named if match[1] == "trialParameters" else fields)[match[2]])

    def fill(value: object) -> object:
        if isinstance(value, str) and value.startswith(PLAIN):
            return _number(_PLACEHOLDER.sub(replacement, value.removeprefix(PLAIN)))
        if isinstance(value, str):
            return _PLACEHOLDER.sub(replacement, value)
        if isinstance(value, dict):
            return {_PLACEHOLDER.sub(replacement, key): fill(part) for key, part in value.items()}
        return [fill(part) for part in value] if isinstance(value, list) else value

    job = fill(spec)
    assert isinstance(job, dict)  # noqa: S101 -- the template is a mapping
    return job


def _number(text: str) -> int | float | str:
    """Return the value of a plain scalar of YAML, as far as parameters have such values."""
    for number in (int, float):
        try:
            value = number(text)
        except ValueError:
            continue
        return value if math.isfinite(value) else text
    return text


def used_parameters(template: Json) -> set[str]:
    """Return the names of the trialParameters that a template uses."""
    used: set[str] = set()

    def walk(value: object) -> None:
        if isinstance(value, str):
            pairs = _PLACEHOLDER.findall(value)
            used.update(name for source, name in pairs if source == "trialParameters")
        elif isinstance(value, dict):
            for key, part in value.items():
                walk(key)
                walk(part)
        elif isinstance(value, list):
            for part in value:
                walk(part)

    walk(template.get("trialSpec") or {})
    return used
