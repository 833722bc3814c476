"""JobSets: what is wrong with one in a sentence, else the core's reconcile."""

import re
from typing import Any

from pydantic import ValidationError

from gangsched.api import dialects, names
from gangsched.api.jobset import JobSetSpec
from gangsched.api.podgroup import PodGroupSpec
from gangsched.config import one_sentence
from gangsched.core.jobs import jobset
from gangsched.core.jobs.model import Json
from gangsched.core.jobs.step import Clock
from gangsched.core.jobs.tree import Owned, Steps
from gangsched.core.shown import shown
from gangsched.operators.owner import OwnerKind
from gangsched.operators.parse import InvalidJobError, asked_of
from gangsched.operators.shape import ClaimTemplate, JobTemplate, misshapen, without_nulls

MANAGER = "jobset.sigs.k8s.io/jobset-controller"
_DNS_LABEL = 63
_SUFFIX = len("-abcde")


def kind(scheduler: str) -> OwnerKind:
    """Return how JobSets are run."""

    def step(owned: Owned, clock: Clock) -> Steps:
        if (owned.body.get("spec") or {}).get("managedBy") not in (None, "", MANAGER):
            return Steps()  # another controller was asked to
        body = dict(owned.body)
        body["spec"] = _checked(owned)
        whole = Owned(body, owned.parts)
        return jobset.reconcile(whole, clock, scheduler, _asked(owned))

    return OwnerKind(jobset.API_VERSION, jobset.KIND, jobset.REFS, step)


def _checked(owned: Owned) -> Json:
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
            raise InvalidJobError(f"{where}: there are two of that name")
        for one in job.dependsOn or []:
            if one.name not in known:
                earlier = ", ".join(known) or "none"
                raise InvalidJobError(
                    f"{where}.dependsOn names {one.name!r}; it must be an earlier one: {earlier}"
                )
        known.append(job.name)
        inner: Any = job.template
        for key in ("spec", "template", "spec"):
            inner = inner.get(key) if isinstance(inner, dict) else None
        if not inner:
            raise InvalidJobError(f"{where}.template.spec.template.spec is missing")
        if wrong := misshapen(job.template, JobTemplate):
            raise InvalidJobError(f"{where}.template.{wrong}")
        count = (job.template["spec"].get("completions") or 1) - 1
        longest = len(f"{owned.name}-{job.name}-{job.replicas - 1}-{count}") + _SUFFIX
        if longest > _DNS_LABEL:
            raise InvalidJobError(
                f"{where}: its pods' names would be {longest} long; DNS allows {_DNS_LABEL}: "
                f"shorten the name of the JobSet or of the replicated job"
            )
    for policy in spec.volumeClaimPolicies or []:
        for template in policy.templates:
            if wrong := misshapen(template, ClaimTemplate):
                raise InvalidJobError(f"{subject}: spec.volumeClaimPolicies.templates: {wrong}")
    _check_targets(spec, known, subject)
    found: Json = without_nulls(spec.model_dump(exclude_none=True))
    return found


def _check_targets(spec: JobSetSpec, known: list[str], subject: str) -> None:
    named: list[tuple[str, str]] = [
        ("successPolicy.targetReplicatedJobs", one)
        for one in (spec.successPolicy.targetReplicatedJobs if spec.successPolicy else None) or []
    ]
    for rule in (spec.failurePolicy.rules if spec.failurePolicy else None) or []:
        named += [
            ("failurePolicy.rules.targetReplicatedJobs", one)
            for one in rule.targetReplicatedJobs or []
        ]
        for pattern in rule.onJobFailureMessagePatterns or []:
            try:
                re.compile(pattern)
            except re.error as error:
                raise InvalidJobError(
                    f"{subject}: spec.failurePolicy.rules.onJobFailureMessagePatterns: "
                    f"{shown(pattern)} is no regular expression: {error}"
                ) from error
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


def _asked(owned: Owned) -> dict[str, Any]:
    """Return what labels and annotations ask of the gangs."""
    metadata = owned.body["metadata"]
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    # Exclusive topology is said role by role: each Job has a domain of its own.
    rest = {key: value for key, value in annotations.items() if key != dialects.JOBSET}
    subject = f"JobSet {owned.namespace}/{owned.name}"
    found = asked_of({"labels": labels, "annotations": rest}, subject, PodGroupSpec)
    if queue := dialects.queue_of(labels, annotations):
        found["queue"] = queue
    if user := annotations.get(names.USER_ANNOTATION):
        found["user"] = user
    return found
