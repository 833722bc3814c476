"""JobSets: validation and defaults, before the pure reconcile."""

from dataclasses import replace
from typing import Any

from pydantic import ValidationError

from gangsched.api import dialects
from gangsched.api.jobs.jobset import JobSetSpec
from gangsched.api.podgroup import PodGroupSpec
from gangsched.config import one_sentence
from gangsched.core.bounds import (
    CLAIMS_OF_JOBSET,
    JOBS_OF_JOBSET,
    PATTERNS,
    PODS_OF_GANG,
)
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import Json
from gangsched.jobs.common.owned_objects import Owned, Steps
from gangsched.jobs.jobset import reconcile
from gangsched.jobs.jobset.stages import pods_at_a_time
from gangsched.kube.client.client import KubeClient
from gangsched.operators.evaluation.pool import Evaluators, OverrunError, UnusableError
from gangsched.operators.job_kind import BlockedError, InvalidJobError, OwnerKind
from gangsched.operators.kinds.template_schema import (
    ClaimTemplate,
    JobTemplate,
    template_error,
    without_nulls,
)
from gangsched.operators.kinds.training_job import gang_requests
from gangsched.operators.search.expressions import ExpressionError, compiled

MANAGER = "jobset.sigs.k8s.io/jobset-controller"
_DNS_LABEL = 63
_PATTERNS = "spec.failurePolicy.rules.onJobFailureMessagePatterns"
_SUFFIX = len("-abcde")


def jobset_kind(scheduler: str, evaluators: Evaluators | None = None) -> OwnerKind:
    """Return the kind JobSet: its parts, its step, and its look-ups."""
    evaluators = evaluators or Evaluators()

    def step(owned: Owned, clock: Clock) -> Steps:
        if _is_managed_elsewhere(owned):
            return Steps()
        body = dict(owned.body)
        body["spec"] = _validated(owned)
        validated = Owned(body, owned.parts)
        extra_spec = _gang_requests(owned)
        return reconcile.reconcile(validated, clock, scheduler, extra_spec, owned.lookups)

    async def look(_: KubeClient, owned: Owned) -> Owned:
        """Match the failure policy's patterns with the messages of failed Jobs."""
        failed = reconcile.messages(owned)
        if (
            not failed
            or _is_managed_elsewhere(owned)
            or not (patterns := _patterns(_validated(owned)))
        ):
            return owned
        where = f"JobSet {owned.namespace}/{owned.name}: {_PATTERNS}"
        try:
            return replace(owned, lookups=await evaluators.matching(owned, patterns, failed))
        except UnusableError as error:
            raise InvalidJobError(f"{where}: {error}") from error
        except OverrunError as error:
            if error.may_retry:
                raise BlockedError(f"{where}: {error}; gangsched retries it") from error
            raise InvalidJobError(f"{where}: {error}") from error

    return OwnerKind(
        reconcile.API_VERSION, reconcile.KIND, reconcile.REFS, step, read_unwatched=look
    )


def _is_managed_elsewhere(owned: Owned) -> bool:
    """Return whether a JobSet names another controller to run it."""
    return (owned.body.get("spec") or {}).get("managedBy") not in (None, "", MANAGER)


def _patterns(spec: Json) -> list[str]:
    rules = (spec.get("failurePolicy") or {}).get("rules") or []
    return [pattern for rule in rules for pattern in rule.get("onJobFailureMessagePatterns") or []]


def _validated(owned: Owned) -> Json:
    """Return the spec with its defaults.

    Raises:
        InvalidJobError: a field is wrong.

    """
    subject = f"JobSet {owned.namespace}/{owned.name}"
    try:
        spec = JobSetSpec.model_validate(owned.body.get("spec") or {})
    except ValidationError as error:
        raise InvalidJobError(one_sentence(error, f"{subject}: spec")) from error
    if not spec.replicatedJobs:
        raise InvalidJobError(f"{subject}: spec.replicatedJobs is empty; it needs at least one")
    known: list[str] = []
    for job in spec.replicatedJobs:
        where = f"{subject}: spec.replicatedJobs[{job.name}]"
        if job.name in known:
            raise InvalidJobError(f"{where}: there are two replicated jobs of that name")
        for dependency in job.dependsOn or []:
            if dependency.name not in known:
                earlier = ", ".join(known) or "none"
                raise InvalidJobError(
                    f"{where}.dependsOn names {dependency.name!r}; it must name an earlier "
                    f"replicated job: {earlier}"
                )
        known.append(job.name)
        inner: Any = job.template
        for key in ("spec", "template", "spec"):
            inner = inner.get(key) if isinstance(inner, dict) else None
        if not inner:
            raise InvalidJobError(f"{where}.template.spec.template.spec is missing")
        if wrong := template_error(job.template, JobTemplate):
            raise InvalidJobError(f"{where}.template.{wrong}")
        count = (job.template["spec"].get("completions") or 1) - 1
        longest = len(f"{owned.name}-{job.name}-{job.replicas - 1}-{count}") + _SUFFIX
        if longest > _DNS_LABEL:
            raise InvalidJobError(
                f"{where}: its pods' names would have {longest} letters; DNS allows {_DNS_LABEL}; "
                f"shorten the name of the JobSet or of the replicated job"
            )
    for policy in spec.volumeClaimPolicies or []:
        for template in policy.templates:
            if wrong := template_error(template, ClaimTemplate):
                raise InvalidJobError(f"{subject}: spec.volumeClaimPolicies.templates: {wrong}")
    _check_targets(spec, known, subject)
    with_defaults: Json = without_nulls(spec.model_dump(exclude_none=True))
    _check_sizes(with_defaults, subject)
    return with_defaults


def _check_sizes(spec: Json, subject: str) -> None:
    rjobs = spec["replicatedJobs"]
    policies = spec.get("volumeClaimPolicies") or []
    claims = sum(len(policy.get("templates") or []) for policy in policies)
    for where, count, bound in (
        ("spec.replicatedJobs", sum(rjob["replicas"] for rjob in rjobs), JOBS_OF_JOBSET),
        ("spec.replicatedJobs", sum(map(pods_at_a_time, rjobs)), PODS_OF_GANG),
        ("spec.volumeClaimPolicies", claims, CLAIMS_OF_JOBSET),
        (_PATTERNS, len(_patterns(spec)), PATTERNS),
    ):
        if count > bound.most:
            raise InvalidJobError(
                f"{subject}: {where} needs {count}; at most {bound.most} are allowed ({bound.what})"
            )


def _check_targets(spec: JobSetSpec, known: list[str], subject: str) -> None:
    targets = (spec.successPolicy.targetReplicatedJobs if spec.successPolicy else None) or []
    named: list[tuple[str, str]] = [
        ("successPolicy.targetReplicatedJobs", target) for target in targets
    ]
    for rule in (spec.failurePolicy.rules if spec.failurePolicy else None) or []:
        named += [
            ("failurePolicy.rules.targetReplicatedJobs", target)
            for target in rule.targetReplicatedJobs or []
        ]
        for pattern in rule.onJobFailureMessagePatterns or []:
            try:
                compiled(pattern)
            except ExpressionError as error:
                raise InvalidJobError(f"{subject}: {_PATTERNS}: {error}") from error
    if spec.coordinator is not None:
        named.append(("coordinator.replicatedJob", spec.coordinator.replicatedJob))
    for where, name in named:
        if name not in known:
            raise InvalidJobError(
                f"{subject}: spec.{where} names {name!r}; there are: {', '.join(known)}"
            )
    orders = any(job.dependsOn for job in spec.replicatedJobs)
    if orders and spec.startupPolicy and spec.startupPolicy.startupPolicyOrder == "InOrder":
        raise InvalidJobError(
            f"{subject}: spec.startupPolicy InOrder and dependsOn exclude each other; keep one"
        )


def _gang_requests(owned: Owned) -> dict[str, Any]:
    """Return the requests of labels and annotations as fields of the gangs' PodGroups."""
    metadata = owned.body["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    # Exclusive topology is declared for each role: each Job has a domain of its own.
    rest = {key: value for key, value in annotations.items() if key != dialects.JOBSET}
    subject = f"JobSet {owned.namespace}/{owned.name}"
    fields = gang_requests({"labels": labels, "annotations": rest}, subject, PodGroupSpec)
    pods = (job["template"]["spec"]["template"] for job in owned.body["spec"]["replicatedJobs"])
    pod_labels = ((pod.get("metadata") or {}).get("labels") for pod in pods)
    admitted = dialects.admitted_elsewhere(*pod_labels)
    if queue := dialects.queue_of(labels, annotations, admitted=admitted):
        fields["queue"] = queue
    return fields
