"""Katib's Experiment and Trial (kubeflow.org/v1beta1): hyperparameter search."""

from typing import Any, Literal

from pydantic import Field

from gangsched.api.base import ApiModel
from gangsched.core.bounds import FILTERS, FIRST_VALUES, METRICS, PARAMETERS, TRIALS, VALUES

NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
"""A number in decimal notation."""

_OPEN: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}


class Setting(ApiModel):
    """A setting of an algorithm; values are strings."""

    name: str
    value: str


class FeasibleSpace(ApiModel):
    """What a parameter may be; numbers are strings."""

    min: str | None = None
    max: str | None = None
    values: list[str] | None = Field(None, alias="list", max_length=VALUES.most)
    step: str | None = None
    distribution: Literal["uniform", "logUniform", "normal", "logNormal", "unknown"] | None = None


class Parameter(ApiModel):
    """One dimension of the search."""

    name: str = Field(min_length=1)
    parameterType: Literal["double", "int", "discrete", "categorical"]  # noqa: N815
    feasibleSpace: FeasibleSpace  # noqa: N815


class Strategy(ApiModel):
    """Which of a metric's values counts for a trial."""

    name: str
    value: Literal["min", "max", "latest"]


class Objective(ApiModel):
    """What is sought."""

    type: Literal["minimize", "maximize"]
    goal: float | None = None
    objectiveMetricName: str = Field(min_length=1)  # noqa: N815
    additionalMetricNames: list[str] | None = Field(  # noqa: N815
        None, max_length=METRICS.most
    )
    metricStrategies: list[Strategy] | None = None  # noqa: N815


class Algorithm(ApiModel):
    """How trials are chosen, or stopped early."""

    algorithmName: str = Field(min_length=1)  # noqa: N815
    algorithmSettings: list[Setting] | None = None  # noqa: N815


class TrialParameter(ApiModel):
    """What `${trialParameters.name}` in the template stands for."""

    name: str
    description: str | None = None
    reference: str


class ConfigMapSource(ApiModel):
    """A template in a ConfigMap."""

    configMapName: str  # noqa: N815
    configMapNamespace: str | None = None  # noqa: N815
    templatePath: str  # noqa: N815


class TrialTemplate(ApiModel):
    """The job of every trial."""

    retain: bool | None = None
    trialSpec: dict[str, Any] | None = Field(None, json_schema_extra=_OPEN)  # noqa: N815
    configMap: ConfigMapSource | None = None  # noqa: N815
    trialParameters: list[TrialParameter] | None = None  # noqa: N815
    primaryPodLabels: dict[str, str] | None = None  # noqa: N815
    primaryContainerName: str | None = None  # noqa: N815
    successCondition: str | None = None  # noqa: N815
    failureCondition: str | None = None  # noqa: N815


class Collector(ApiModel):
    """How metrics come out of a trial."""

    kind: str | None = None
    customCollector: dict[str, Any] | None = Field(  # noqa: N815
        None, json_schema_extra=_OPEN
    )


class MetricsFilter(ApiModel):
    """Expressions with two groups, the metric's name and its value."""

    metricsFormat: list[str] | None = Field(None, max_length=FILTERS.most)  # noqa: N815


class MetricsSource(ApiModel):
    """Where metrics are, and how they are written."""

    filter: MetricsFilter | None = None
    fileSystemPath: dict[str, Any] | None = Field(None, json_schema_extra=_OPEN)  # noqa: N815
    httpGet: dict[str, Any] | None = Field(None, json_schema_extra=_OPEN)  # noqa: N815


class MetricsCollector(ApiModel):
    """Where metrics come from."""

    collector: Collector | None = None
    source: MetricsSource | None = None


class ExperimentSpec(ApiModel):
    """A search."""

    parameters: list[Parameter] | None = Field(None, max_length=PARAMETERS.most)
    objective: Objective
    algorithm: Algorithm
    earlyStopping: Algorithm | None = None  # noqa: N815
    trialTemplate: TrialTemplate  # noqa: N815
    parallelTrialCount: int | None = Field(None, ge=1, le=TRIALS.most)  # noqa: N815
    maxTrialCount: int | None = Field(None, ge=1, le=TRIALS.most)  # noqa: N815
    maxFailedTrialCount: int | None = Field(None, ge=0)  # noqa: N815
    metricsCollectorSpec: MetricsCollector | None = None  # noqa: N815
    resumePolicy: Literal["Never", "LongRunning", "FromVolume"] | None = None  # noqa: N815
    nasConfig: dict[str, Any] | None = Field(None, json_schema_extra=_OPEN)  # noqa: N815


class ParameterAssignment(ApiModel):
    """A parameter's value in one trial."""

    name: str
    value: str


class SuggestionSpec(ApiModel):
    """What a search was asked for; gangsched writes it, as a report."""

    algorithm: Algorithm | None = None
    earlyStopping: Algorithm | None = None  # noqa: N815
    requests: int | None = None
    resumePolicy: str | None = None  # noqa: N815


class StoppingRule(ApiModel):
    """When a trial is stopped early."""

    name: str
    value: str = Field(pattern=NUMBER)
    comparison: Literal["equal", "less", "greater"]
    startStep: int | None = Field(None, le=FIRST_VALUES.most)  # noqa: N815


class TrialSpec(ApiModel):
    """One point of a search, and the job that tries it."""

    objective: Objective
    parameterAssignments: list[ParameterAssignment]  # noqa: N815
    runSpec: dict[str, Any] = Field(json_schema_extra=_OPEN)  # noqa: N815
    retainRun: bool | None = None  # noqa: N815
    metricsCollector: MetricsCollector | None = None  # noqa: N815
    primaryPodLabels: dict[str, str] | None = None  # noqa: N815
    primaryContainerName: str | None = None  # noqa: N815
    successCondition: str | None = None  # noqa: N815
    failureCondition: str | None = None  # noqa: N815
    earlyStoppingRules: list[StoppingRule] | None = None  # noqa: N815
    labels: dict[str, str] | None = None
