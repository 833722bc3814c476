"""Experiments: validation, defaults and the search, before the pure reconcile."""

from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from gangsched.api.jobs.katib import ExperimentSpec, Parameter
from gangsched.config import one_sentence
from gangsched.core.bounds import TRIAL_BYTES, TRIALS
from gangsched.core.model.text import shown
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import Json
from gangsched.jobs.common.owned_objects import Owned, Steps
from gangsched.jobs.katib import experiment
from gangsched.jobs.katib.trial import API_VERSION
from gangsched.kube.client.client import KubeClient
from gangsched.operators.api_objects import clock
from gangsched.operators.evaluation.pool import Evaluators, OverrunError, UnusableError
from gangsched.operators.job_kind import BlockedError, InvalidJobError, OwnerKind
from gangsched.operators.kinds.trial import job_error, labels_error
from gangsched.operators.kinds.trial_queue import in_queue_of
from gangsched.operators.search.algorithm_settings import MEDIANSTOP, algorithm_error
from gangsched.operators.search.job_outcome import ConditionError, check
from gangsched.operators.search.search_space import LOGARITHMIC
from gangsched.operators.search.suggestion import ALGORITHMS

_NAME_LENGTH = 40
_PARALLEL = 3
_LARGEST = {"int": 2**63 - 1, "double": 1e300}
"""The largest numbers that the search libraries compute with."""

_KATIB = ("hyperband", "pbt", "cmaes", "enas", "darts")
"""What Katib has and we do not."""


def kind(evaluators: Evaluators) -> OwnerKind:
    """Return how Experiments are run."""

    async def look(_: KubeClient, owned: Owned) -> Owned:
        """Return an experiment with its defaults, and with the next points if it needs any."""
        whole = replace(owned, body=owned.body | {"spec": _validated(owned)})
        asked: list[tuple[Json, list[experiment.TriedPoint], int]] = []

        def ask(
            spec: Json, tried: list[experiment.TriedPoint], count: int, _: str
        ) -> list[experiment.Assignments]:
            asked.append((spec, tried, count))
            return []

        experiment.reconcile(whole, ask, clock())  # only the requested points count
        if not asked:
            return whole
        subject = f"Experiment {owned.namespace}/{owned.name}"
        try:
            return replace(whole, lookups={"points": await evaluators.points(whole, *asked[0])})
        except UnusableError as error:
            raise InvalidJobError(f"{subject}: spec.parameters: {error}") from error
        except OverrunError as error:
            spec, tried, _count = asked[0]
            clause = (
                f"the search by {spec['algorithm']['algorithmName']} over {len(tried)} trials and "
                f"{len(spec['parameters'])} parameters cannot be done: {error}"
            )
            if error.may_retry:
                raise BlockedError(f"{subject}: {clause}; it is tried again") from error
            return replace(whole, lookups={"failed": clause})

    def step(owned: Owned, clock: Clock) -> Steps:
        def suggest(*_: Any) -> list[experiment.Assignments]:
            if "failed" in owned.lookups:
                raise experiment.SearchError(owned.lookups["failed"])
            found: list[experiment.Assignments] = owned.lookups["points"]
            return found

        steps = experiment.reconcile(owned, suggest, clock)
        steps.create = [in_queue_of(owned.body, one) for one in steps.create]
        return steps

    parts = ((API_VERSION, "Trial"),)
    return OwnerKind(experiment.API_VERSION, experiment.KIND, parts, step, read_unwatched=look)


def _validated(owned: Owned) -> Json:
    """Return the spec with its defaults.

    Raises:
        InvalidJobError: a field is wrong.

    """
    subject = f"Experiment {owned.namespace}/{owned.name}"

    def wrong(sentence: str) -> InvalidJobError:
        return InvalidJobError(f"{subject}: {sentence}")

    try:
        spec = ExperimentSpec.model_validate(owned.body.get("spec") or {})
    except ValidationError as error:
        raise InvalidJobError(one_sentence(error, f"{subject}: spec")) from error
    if len(owned.of("Trial")) > TRIALS.most:
        raise wrong(f"it has {len(owned.of('Trial'))} Trials; {TRIALS.most} are allowed")
    if len(owned.name) > _NAME_LENGTH:
        raise wrong(f"its name has {len(owned.name)} letters; {_NAME_LENGTH} are allowed")
    name = spec.algorithm.algorithmName
    if name not in ALGORITHMS:
        said = "is Katib's and not run here" if name in _KATIB else "is not known"
        there = ", ".join(ALGORITHMS)
        raise wrong(f"spec.algorithm.algorithmName: {shown(name)} {said}; there are: {there}")
    if why := algorithm_error(spec.algorithm):
        raise wrong(f"spec.algorithm.{why}")
    stopping = spec.earlyStopping
    if stopping is not None and stopping.algorithmName != MEDIANSTOP:
        known = stopping.algorithmName
        raise wrong(
            f"spec.earlyStopping.algorithmName: {shown(known)} is not known; use {MEDIANSTOP}"
        )
    if stopping is not None and (why := algorithm_error(stopping)):
        raise wrong(f"spec.earlyStopping.{why}")
    most = spec.maxTrialCount
    for field, count in (
        ("parallelTrialCount", spec.parallelTrialCount),
        ("maxFailedTrialCount", spec.maxFailedTrialCount),
    ):
        if most is not None and count is not None and count > most:
            raise wrong(f"spec.{field} is {count}, above spec.maxTrialCount, which is {most}")
    if not spec.parameters:
        raise wrong("spec.parameters is empty; it needs at least one")
    for parameter in spec.parameters:
        if why := _parameter_error(parameter):
            raise wrong(f"spec.parameters[{parameter.name}].feasibleSpace: {why}")
    if why := _collector_error(spec):
        raise wrong(why)
    made: Json = spec.model_dump(exclude_none=True, by_alias=True)
    made["maxTrialCount"] = most or TRIALS.most
    made["parallelTrialCount"] = spec.parallelTrialCount or min(_PARALLEL, most or _PARALLEL)
    made.setdefault("resumePolicy", "Never")
    # Free-form parts are kept as they are written.
    made["trialTemplate"]["trialSpec"] = owned.body["spec"]["trialTemplate"].get("trialSpec")
    if why := _trial_template_error(made):
        raise wrong(f"spec.trialTemplate.{why}")
    return made


def _parameter_error(parameter: Parameter) -> str:
    """Return what is wrong with a parameter's space."""
    space = parameter.feasibleSpace
    if parameter.parameterType in ("categorical", "discrete"):
        return "" if space.values else f"a {parameter.parameterType} parameter needs a list"
    numbers: dict[str, float] = {}
    for field in ("min", "max", "step"):
        text = getattr(space, field)
        if text is None:
            continue
        kind = parameter.parameterType
        try:
            numbers[field] = int(text) if kind == "int" else float(text)
        except ValueError:
            return f"{field} is {shown(text)}; it must be a number ({kind})"
        if not abs(numbers[field]) <= _LARGEST[kind]:
            return f"{field} is {shown(text)}; it must be within ±{_LARGEST[kind]:.3g}"
    if "min" not in numbers or "max" not in numbers:
        return f"a parameter of type {parameter.parameterType} needs min and max"
    if numbers["min"] > numbers["max"]:
        return f"min is {_cut(space.min)}, above max, which is {_cut(space.max)}"
    if numbers.get("step", 1.0) <= 0:
        return f"step is {_cut(space.step)}; it must be above 0"
    if space.distribution in LOGARITHMIC and numbers["min"] <= 0:
        return f"distribution {space.distribution} needs min above 0, and it is {_cut(space.min)}"
    return ""


def _cut(number: str | None) -> str:
    """Return a number as it was written, which may be with thousands of zeros."""
    return shown(number or "").strip("'")


def _collector_error(spec: ExperimentSpec) -> str:
    """Return what is wrong with where metrics come from."""
    collector = spec.metricsCollectorSpec.collector if spec.metricsCollectorSpec else None
    given = collector.kind if collector is not None else None
    if given in (None, "StdOut"):
        return ""
    return (
        f"spec.metricsCollectorSpec.collector.kind: {given} is not run here; have the trial print "
        f"lines name=value, and leave it out (StdOut)"
    )


def _trial_template_error(spec: dict[str, Any]) -> str:
    """Return what is wrong with the template of trials."""
    template = spec["trialTemplate"]
    if why := labels_error(template.get("primaryPodLabels") or {}):
        return f"primaryPodLabels: {why}"
    trial = template.get("trialSpec")
    if not isinstance(trial, dict):
        return "trialSpec is missing; it holds the job of a trial (a configMap is not read)"
    if why := job_error(trial):
        return f"trialSpec {why}"
    try:
        check(template)
    except ConditionError as error:
        return str(error)
    names = {one["name"] for one in spec["parameters"]}
    given_names = {one["name"] for one in template.get("trialParameters") or []}
    for one in template.get("trialParameters") or []:
        if one["reference"] not in names and not one["reference"].startswith("${trialSpec."):
            there = ", ".join(sorted(names))
            return (
                f"trialParameters[{one['name']}].reference: {shown(one['reference'])} is not one "
                f"of spec.parameters, which are: {there}"
            )
    used = experiment.used_parameters(template)
    if missing := sorted(used - given_names):
        return f"trialSpec uses ${{trialParameters.{missing[0]}}}, which trialParameters lacks"
    if idle := sorted(given_names - used):
        return f"trialParameters[{idle[0]}] is not used in trialSpec"
    try:
        point = dict.fromkeys(names, "0")
        experiment.fill_template(template, point, "trial", "namespace")
    except experiment.TooLargeError:
        return f"trialSpec would have more than {TRIAL_BYTES.most} letters; it is to have fewer"
    except KeyError as error:
        return f"trialSpec uses ${{trialSpec.{error.args[0]}}}, which there is not"
    return ""
