"""The reconcile of a Trial (Katib, kubeflow.org/v1beta1): one job, and the metrics in its log."""

import copy
from dataclasses import dataclass

from gangsched.core.bounds import FIRST_VALUES
from gangsched.core.model.text import whole
from gangsched.jobs.common import conditions
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import JobEvent, Json
from gangsched.jobs.common.owned_objects import Owned, Ref, Steps, is_terminating
from gangsched.jobs.katib import metrics
from gangsched.jobs.katib.pod_templates import label_pods
from gangsched.jobs.katib.status import KatibStep

API_VERSION, KIND = "kubeflow.org/v1beta1", "Trial"
TRIAL_LABEL = "katib.kubeflow.org/trial"
EXPERIMENT_LABEL = "katib.kubeflow.org/experiment"
KILL = "gangsched.io/kill-trial"
"""Annotation: the experiment is over, and this trial with it."""

FIRST_STEPS = "gangsched.io/first-steps"
"""Annotation: how many of a trial's first values count in comparisons with other trials."""

JOBS: tuple[tuple[str, str], ...] = (
    ("batch/v1", "Job"),
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"),
    ("jobset.x-k8s.io/v1alpha2", "JobSet"),
    *(
        ("kubeflow.org/v1", kind)
        for kind in ("PyTorchJob", "TFJob", "XGBoostJob", "MPIJob", "PaddleJob", "JAXJob")
    ),
)
"""The kinds of job that a trial may run."""

OVER = ("Succeeded", "Failed", "Killed", "MetricsUnavailable", "EarlyStopped")
_LOOK_S = 5.0
READ_S = 30.0
"""Seconds between two looks at the metrics of a trial that runs and has no stopping rule."""

_LOG_LATE_S = 30.0
"""How long after a job's end its log may be missing."""


@dataclass(frozen=True, slots=True)
class TrialJobOutcome:
    """The state of a trial's job: how it ended, and the metrics in its log.

    `ended` is empty while the job runs; `series` is None if there is no log. `unreadable` is a
    clause with the reason why the log can never be read. `recent`: only the last lines were read.
    `log` says which log has the metrics, and `without_metrics` that none does.
    """

    ended: str = ""
    series: metrics.Series | None = None
    unreadable: str = ""
    recent: bool = False
    log: str = "the log"
    without_metrics: bool = False


def trial_state(trial: Json) -> str:
    """Return how a trial ended, or Running, or Pending."""
    conditions = (trial.get("status") or {}).get("conditions") or ()
    true = {item["type"] for item in conditions if item["status"] == "True"}
    return next((kind for kind in (*OVER, "Running") if kind in true), "Pending")


def metric_names(spec: Json) -> list[str]:
    """Return the metrics to find in a trial's log, the objective first."""
    objective = spec["objective"]
    return [objective["objectiveMetricName"], *(objective.get("additionalMetricNames") or [])]


def reconcile(owned: Owned, seen: TrialJobOutcome, clock: Clock) -> Steps:
    """Return the actions to take now."""
    return _Trial(owned, seen, clock).steps()


class _Trial(KatibStep):
    """One call of the reconcile."""

    def __init__(self, owned: Owned, seen: TrialJobOutcome, clock: Clock) -> None:
        super().__init__(owned, clock)
        self.outcome = seen

    @property
    def ref(self) -> Ref:
        """Return kind and name of the trial's job."""
        return self.spec["runSpec"]["kind"], self.owned.name

    def steps(self) -> Steps:
        job = self.owned.parts.get(self.ref)
        if trial_state(self.owned.body) in OVER:
            self._delete_job(job)
            return self.result
        self.set_condition("Created", "TrialCreated", "Trial is created")
        killed = (self.owned.body["metadata"].get("annotations") or {}).get(KILL)
        if killed:
            self._end("Killed", "TrialKilled", f"Trial was stopped: {killed}")
        elif job is None:
            self.result.create.append(self._job())
        elif not is_terminating(job):
            self.set_condition("Running", "TrialRunning", "Trial is running")
            self._evaluate()
        return self.finish()

    def _evaluate(self) -> None:
        """Evaluate the job: it ended, or its metrics break a stopping rule."""
        if self.outcome.unreadable:
            self._end(
                "Failed", "TrialFailed", f"Trial has failed because {self.outcome.unreadable}"
            )
            return
        self._record_metrics()
        match self.outcome.ended:
            case "failed":
                self._end("Failed", "TrialFailed", "Trial has failed")
            case "succeeded" if self.outcome.series is None and not self._log_is_late():
                self.result.requeue_in(_LOOK_S)
            case "succeeded" if self._has_value() or self.outcome.without_metrics:
                self._end("Succeeded", "TrialSucceeded", "Trial has succeeded")
            case "succeeded":
                name = self.spec["objective"]["objectiveMetricName"]
                self._end(
                    "MetricsUnavailable",
                    "TrialMetricsUnavailable",
                    f"Metrics are not available: {self.outcome.log} has no line {name}=NUMBER",
                )
            case _:
                self._stop_early()

    def _log_is_late(self) -> bool:
        """Return whether a missing log should exist by now."""
        waited_s = self.clock.now_s - float(
            self.status.setdefault("endSeenSeconds", self.clock.now_s)
        )
        return waited_s >= _LOG_LATE_S

    def _stop_early(self) -> None:
        rules = self.spec.get("earlyStoppingRules") or []
        if not rules:
            self.result.requeue_in(READ_S)
            return
        self.result.requeue_in(_LOOK_S)
        objective = self.spec["objective"]
        values = (self.outcome.series or {}).get(objective["objectiveMetricName"]) or []
        if all(metrics.breaks_rule(rule, values, objective) for rule in rules):
            self._end("EarlyStopped", "TrialEarlyStopped", "Trial is early stopped")
            self.result.delete.append(self.ref)

    def _record_metrics(self) -> None:
        if self.outcome.series is None:
            return
        observed = metrics.observation(self.outcome.series)
        if any(values for values in self.outcome.series.values()):
            known = self.status.get("observation") or {}
            self.status["observation"] = metrics.merged_observation(known, observed)
            if not self.outcome.recent:
                self.status["observationLog"] = metrics.observation_log(self.outcome.series)
        text = (self.owned.body["metadata"].get("annotations") or {}).get(FIRST_STEPS, "")
        count = min(whole(text) or 0, FIRST_VALUES.most)
        values = self.outcome.series.get(self.spec["objective"]["objectiveMetricName"]) or []
        if count and values and not self.outcome.recent:
            first = values[:count]
            self.status["firstStepsMean"] = repr(sum(first) / len(first))

    def _has_value(self) -> bool:
        objective = self.spec["objective"]
        name = objective["objectiveMetricName"]
        strategy = metrics.strategies(objective)[name]
        observed = self.status.get("observation") or {}
        return metrics.value_of(observed, name, strategy) is not None

    def _delete_job(self, job: Json | None) -> None:
        """Delete the job of a trial that is over, unless `retainRun` keeps it."""
        keeps = self.spec.get("retainRun") and trial_state(self.owned.body) in (
            "Succeeded",
            "Failed",
        )
        if job is not None and not is_terminating(job) and not keeps:
            self.result.delete.append(self.ref)

    def _job(self) -> Json:
        document: Json = copy.deepcopy(self.spec["runSpec"])
        metadata = document.get("metadata") or {}
        own = {TRIAL_LABEL: self.owned.name}
        experiment = (self.owned.body["metadata"].get("labels") or {}).get(EXPERIMENT_LABEL)
        own |= {EXPERIMENT_LABEL: experiment} if experiment else {}
        labels = (metadata.get("labels") or {}) | own
        document["metadata"] = metadata | {"name": self.owned.name, "labels": labels}
        label_pods(document, own)  # Katib's client looks for them by the trial
        return document

    def _end(self, kind: str, reason: str, message: str) -> None:
        self.status.pop("endSeenSeconds", None)
        self.set_condition(kind, reason, message)
        if conditions.is_true(self.status, "Running"):
            self._stopped_running()
        self.status["completionTime"] = self.clock.now
        warning = "Normal" if kind == "Succeeded" else "Warning"
        self.result.events.append(JobEvent(warning, reason, message))
        self.result.requeue_in(0.0)

    def _stopped_running(self) -> None:
        put = conditions.put
        put(self.status, "Running", "TrialRunning", "Trial is over", self.clock.now, true=False)
