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
from gangsched.jobs.katib import experiment, suggestion
from gangsched.jobs.katib.checkpoints import SETTING as FOLDER
from gangsched.jobs.katib.checkpoints import Checkpoints
from gangsched.jobs.katib.collectors import sidecar_of
from gangsched.jobs.katib.pod_templates import containers, pod_templates
from gangsched.jobs.katib.trial import API_VERSION
from gangsched.kube.client.client import KubeClient
from gangsched.operators.api_objects import clock
from gangsched.operators.evaluation.pool import Evaluators, OverrunError, UnusableError
from gangsched.operators.job_kind import BlockedError, InvalidJobError, OwnerKind
from gangsched.operators.kinds.trial import job_error, labels_error
from gangsched.operators.kinds.trial_queue import in_queue_of
from gangsched.operators.kinds.trial_template import TrialTemplates
from gangsched.operators.search.algorithm_settings import MEDIANSTOP, algorithm_error
from gangsched.operators.search.job_outcome import ConditionError, check
from gangsched.operators.search.search_space import LOGARITHMIC
from gangsched.operators.search.suggestion import ALGORITHMS

_NAME_LENGTH = 40
_PARALLEL = 3
_LARGEST = {"int": 2**63 - 1, "double": 1e300}
"""The largest numbers that the search libraries compute with."""

_ARCHITECTURE_SEARCH = ("enas", "darts")
"""Algorithms of Katib that search neural architectures, and not parameters."""

_PARAMETER_OF = {"hyperband": "resource_name"}
"""Settings that name a parameter."""


def experiment_kind(evaluators: Evaluators) -> OwnerKind:
    """Return the kind Experiment: its parts, its step, and its look-ups."""
    templates = TrialTemplates(evaluators)

    async def look(client: KubeClient, owned: Owned) -> Owned:
        """Return an experiment with its defaults, and with the next points if it needs any."""
        owned = await templates.filled_in(client, owned)
        validated = replace(owned, body=owned.body | {"spec": _validated(owned)})
        requests: list[tuple[Json, list[experiment.TriedPoint], int]] = []

        def record(
            spec: Json, tried: list[experiment.TriedPoint], count: int, _: str
        ) -> list[experiment.SuggestedPoint]:
            requests.append((spec, tried, count))
            return []

        experiment.reconcile(validated, record, clock())  # only its requests for points count
        if not requests:
            return validated
        subject = f"Experiment {owned.namespace}/{owned.name}"
        try:
            points = await evaluators.points(validated, *requests[0])
            return replace(validated, lookups={"points": points})
        except UnusableError as error:
            raise InvalidJobError(f"{subject}: spec.parameters: {error}") from error
        except OverrunError as error:
            spec, tried, _count = requests[0]
            clause = (
                f"the search by {spec['algorithm']['algorithmName']} over {len(tried)} trials and "
                f"{len(spec['parameters'])} parameters failed: {error}"
            )
            if error.may_retry:
                raise BlockedError(f"{subject}: {clause}; gangsched retries it") from error
            return replace(validated, lookups={"failed": clause})

    def step(owned: Owned, clock: Clock) -> Steps:
        def suggest(*_: Any) -> list[experiment.SuggestedPoint]:
            if "failed" in owned.lookups:
                raise experiment.SearchError(owned.lookups["failed"])
            points: list[experiment.SuggestedPoint] = owned.lookups["points"]
            return points

        steps = experiment.reconcile(owned, suggest, clock)
        steps.create = [in_queue_of(owned.body, document) for document in steps.create]
        return steps

    parts = (
        (API_VERSION, "Trial"),
        (API_VERSION, suggestion.KIND),
        ("v1", "PersistentVolumeClaim"),
    )
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
        raise wrong(f"there are {len(owned.of('Trial'))} Trials; {TRIALS.most} are allowed")
    if len(owned.name) > _NAME_LENGTH:
        raise wrong(f"the name has {len(owned.name)} letters; {_NAME_LENGTH} are allowed")
    name = spec.algorithm.algorithmName
    if name not in ALGORITHMS:
        why = "is not known"
        if name in _ARCHITECTURE_SEARCH:
            why = "searches a neural architecture (nasConfig), and gangsched searches parameters"
        allowed = ", ".join(ALGORITHMS)
        raise wrong(f"spec.algorithm.algorithmName: {shown(name)} {why}; allowed are: {allowed}")
    if why := algorithm_error(spec.algorithm):
        raise wrong(f"spec.algorithm.{why}")
    stopping = spec.earlyStopping
    if stopping is not None and stopping.algorithmName != MEDIANSTOP:
        given = stopping.algorithmName
        raise wrong(
            f"spec.earlyStopping.algorithmName: {shown(given)} is not known; use {MEDIANSTOP}"
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
    if why := _algorithm_of_space_error(spec):
        raise wrong(f"spec.algorithm.algorithmSettings{why}")
    result: Json = spec.model_dump(exclude_none=True, by_alias=True)
    result["maxTrialCount"] = most or TRIALS.most
    result["parallelTrialCount"] = spec.parallelTrialCount or min(_PARALLEL, most or _PARALLEL)
    result.setdefault("resumePolicy", "Never")
    # The free-form trialSpec stays as the user wrote it.
    result["trialTemplate"]["trialSpec"] = owned.body["spec"]["trialTemplate"].get("trialSpec")
    if why := _trial_template_error(result) or _checkpoint_error(result, owned):
        raise wrong(f"spec.trialTemplate.{why}")
    if why := _collector_error(result):
        raise wrong(why)
    return result


def _algorithm_of_space_error(spec: ExperimentSpec) -> str:
    """Return which setting does not fit the parameters or the template."""
    settings = {item.name: item.value for item in spec.algorithm.algorithmSettings or []}
    names = [parameter.name for parameter in spec.parameters or []]
    named = _PARAMETER_OF.get(spec.algorithm.algorithmName)
    if named is not None and settings[named] not in names:
        return f"[{named}] is {shown(settings[named])}; it must be one of: {', '.join(names)}"
    return ""


def _checkpoint_error(spec: Json, owned: Owned) -> str:
    """Return why the trials cannot keep checkpoints, if they have to."""
    checkpoints = Checkpoints.of(replace(owned, body=owned.body | {"spec": spec}))
    job, primary = spec["trialTemplate"]["trialSpec"], checkpoints.primary
    if not checkpoints.folder or any(containers(pod, primary) for pod in pod_templates(job)):
        return ""
    what = f"container {primary}" if primary else "pod template"
    return f"trialSpec ({job['kind']}) has no {what} to mount {FOLDER} into"


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
    """Return the text of a number, cut: it may have thousands of zeros."""
    return shown(number or "").strip("'")


def _collector_error(spec: Json) -> str:
    """Return what is wrong with the metrics collector."""
    try:
        sidecar = sidecar_of(spec.get("metricsCollectorSpec"))
    except ValueError as error:
        return f"spec.metricsCollectorSpec.{error}"
    template = spec["trialTemplate"]
    job, primary = template["trialSpec"], template.get("primaryContainerName")
    if not sidecar.container or any(containers(pod, primary) for pod in pod_templates(job)):
        return ""
    what = f"no container {primary}" if primary else "no pod template"
    return (
        f"spec.metricsCollectorSpec.collector.kind is {sidecar.kind}, and "
        f"spec.trialTemplate.trialSpec ({job['kind']}) has {what} for it; use StdOut"
    )


def _trial_template_error(spec: dict[str, Any]) -> str:
    """Return what is wrong with the template of trials."""
    template = spec["trialTemplate"]
    if why := labels_error(template.get("primaryPodLabels") or {}):
        return f"primaryPodLabels: {why}"
    trial = template.get("trialSpec")
    if not isinstance(trial, dict):
        return "trialSpec is missing; it has the job of a trial (or configMap names a template)"
    if why := job_error(trial):
        return f"trialSpec {why}"
    try:
        check(template)
    except ConditionError as error:
        return str(error)
    names = {parameter["name"] for parameter in spec["parameters"]}
    given_names = {item["name"] for item in template.get("trialParameters") or []}
    for item in template.get("trialParameters") or []:
        if item["reference"] not in names and not item["reference"].startswith("${trialSpec."):
            allowed = ", ".join(sorted(names))
            return (
                f"trialParameters[{item['name']}].reference: {shown(item['reference'])} is not in "
                f"spec.parameters, which are: {allowed}"
            )
    used = experiment.used_parameters(template)
    if missing := sorted(used - given_names):
        return f"trialSpec uses ${{trialParameters.{missing[0]}}}, which trialParameters lacks"
    if idle := sorted(given_names - used):
        return f"trialParameters[{idle[0]}] is not used in trialSpec"
    try:
        point = dict.fromkeys(names, "0")
        experiment.fill_template(template, point, "trial", "namespace")
    except experiment.TrialTooLargeError:
        return f"trialSpec would have more than {TRIAL_BYTES.most} letters; shorten it"
    except KeyError as error:
        return f"trialSpec uses ${{trialSpec.{error.args[0]}}}, which does not exist"
    return ""
