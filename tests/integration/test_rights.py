"""The rights of our accounts, compared with their requests to the API server in all other tests.

Runs last. Nothing may have been forbidden; and a right that nobody used is one too many, unless it
stands below with the reason why no test needs it.
"""

import json
import os
from functools import cache

import pytest
from audited import AUDIT

from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.operators.evaluation.pool import Evaluators
from gangsched.operators.kinds import experiment, jobset, trainjob, trial
from gangsched.operators.runtime_watch import Runtimes
from gangsched.shipped import shipped

pytestmark = [
    pytest.mark.last,
    pytest.mark.skipif(
        "AUDITED" not in os.environ, reason="reads what the whole suite asked for: make test"
    ),
]
NAME = "system:serviceaccount:gangsched-system:"
ACCOUNTS = ("gangsched", "kube-scheduler")
VERBS = {"get", "list", "watch", "create", "update", "patch", "delete"}

Right = tuple[str, str, str]
"""API group, resource with its subresource, verb."""

_EXISTS = "what is to be created exists already: whose is it?"
_MPI = "MPIJobs, where Open MPI is installed"
_OWNERS = "clusters with the admission plugin OwnerReferencesPermissionEnforcement"
_MENDED = "somebody changed what a job needs"
_KARPENTER = "clusters with Karpenter: `make karpenter`"
_AUTOSCALED = "clusters with an autoscaler: `make autoscale`"
_TTL = "ttlSecondsAfterFinished of each kind; tried with PyTorchJobs"
_OPERATED = "clusters with the operator of this kind: `make operators`"
_KINDS = ("pytorchjobs", "tfjobs", "mpijobs", "xgboostjobs", "paddlejobs", "jaxjobs", "mxjobs")

UNUSED: dict[Right, str] = {
    **{("", kind, "get"): _EXISTS for kind in ("services", "persistentvolumeclaims", "secrets")},
    ("", "persistentvolumeclaims", "create"): "volumeClaimPolicies of JobSets",
    ("", "serviceaccounts", "get"): _EXISTS,
    ("", "serviceaccounts", "create"): _MPI,
    ("", "pods/exec", "create"): _MPI,
    ("", "configmaps", "update"): "the mig-manager's layouts, from the second on",
    ("", "secrets", "patch"): "certificates of our ports that are near their end",
    ("rbac.authorization.k8s.io", "roles", "get"): _EXISTS,
    ("rbac.authorization.k8s.io", "roles", "create"): _MPI,
    ("rbac.authorization.k8s.io", "roles", "patch"): _MENDED,
    ("rbac.authorization.k8s.io", "rolebindings", "get"): _EXISTS,
    ("rbac.authorization.k8s.io", "rolebindings", "create"): _MPI,
    ("rbac.authorization.k8s.io", "rolebindings", "patch"): _MENDED,
    ("autoscaling", "horizontalpodautoscalers", "patch"): _MENDED,
    **{
        ("autoscaling.x-k8s.io", "provisioningrequests", verb): _AUTOSCALED
        for verb in ("list", "create", "delete")
    },
    ("", "podtemplates", "create"): _AUTOSCALED,
    **{
        ("autoscaling.x-k8s.io", "capacitybuffers", verb): _KARPENTER
        for verb in ("list", "create", "patch", "delete")
    },
    **{("karpenter.sh", "nodeclaims", verb): _KARPENTER for verb in ("list", "create", "delete")},
    ("karpenter.sh", "nodepools", "list"): _KARPENTER,
    ("batch", "jobs", "get"): _EXISTS,
    ("jobset.x-k8s.io", "jobsets", "get"): _EXISTS,
    ("kubeflow.org", "suggestions", "get"): _EXISTS,
    ("jobset.x-k8s.io", "jobsets/finalizers", "update"): _OWNERS,
    ("trainer.kubeflow.org", "trainjobs/finalizers", "update"): _OWNERS,
    ("trainer.kubeflow.org", "trainingruntimes", "patch"): "runtimes of a namespace, without label",
    ("scheduling.k8s.io", "workloads", "watch"): "Kubernetes 1.35, which alone has them",
    ("leaderworkerset.x-k8s.io", "leaderworkersets", "watch"): _OPERATED,
    ("ray.io", "rayjobs", "watch"): _OPERATED,
    **{("kubeflow.org", f"{kind}/finalizers", "update"): _OWNERS for kind in _KINDS},
    **{("kubeflow.org", kind, "delete"): _TTL for kind in _KINDS},
    **{
        (group, kind, verb): "trials of this kind"
        for group, kind in (
            ("trainer.kubeflow.org", "trainjobs"),
            *(("kubeflow.org", kind) for kind in _KINDS if kind != "mxjobs"),
        )
        for verb in ("create", "get", *(["delete"] if kind == "trainjobs" else []))
    },
    ("kubeflow.org", "trials", "get"): _EXISTS,
    ("kubeflow.org", "trials", "patch"): "trials that run still when their Experiment is over",
    ("kubeflow.org", "experiments", "get"): "an Experiment one of whose Trials went: is it there?",
    ("kubeflow.org", "experiments/finalizers", "update"): _OWNERS,
    ("kubeflow.org", "trials/finalizers", "update"): _OWNERS,
}
"""Rights of gangsched that no test need use, and what they are for."""


def granted(account: str) -> set[Right]:
    """Return what the shipped roles let an account do."""
    parts = (("base",), ("extender", "rbac.yaml"), ("web", "rbac.yaml"))
    documents = [one for folder, *names in parts for one in shipped(f"manifests/{folder}", *names)]
    bound = {
        (one["roleRef"]["kind"], one["roleRef"]["name"])
        for one in documents
        if one["kind"].endswith("RoleBinding")
        and any(subject["name"] == account for subject in one["subjects"])
    }
    return {
        (group, resource, verb)
        for one in documents
        if (one["kind"], one["metadata"]["name"]) in bound
        for rule in one["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@cache
def asked(account: str) -> tuple[set[Right], set[tuple[Right, str]]]:
    """Return what an account used, and what it was forbidden, with the path."""
    used, forbidden = set(), set()
    name = f'"{NAME}{account}"'
    for path in AUDIT.glob("*.log"):
        with path.open() as log:
            for line in (line for line in log if name in line):
                event = json.loads(line)
                if event["user"]["username"] != NAME + account or "objectRef" not in event:
                    continue
                of = event["objectRef"]
                parts = [of["resource"], of.get("subresource", "")]
                right = (of.get("apiGroup", ""), "/".join(filter(None, parts)), event["verb"])
                if event["annotations"].get("authorization.k8s.io/decision") == "forbid":
                    forbidden.add((right, event["requestURI"]))
                else:
                    used.add(right)
    return used, forbidden


@pytest.mark.parametrize("account", ACCOUNTS)
def test_nothing_we_asked_for_was_forbidden(account):
    """An API server that has only just started forbids what it has not read the roles of."""
    used, forbidden = asked(account)
    assert used, f"{account} asked for nothing"
    known = granted(account)
    assert not {one for one in forbidden if one[0] not in known}


def test_every_right_is_used_or_explained():
    """kube-scheduler's are Kubernetes' own, without the one to bind."""
    rights = granted("gangsched")
    unused = rights - asked("gangsched")[0]
    assert sorted(unused - UNUSED.keys()) == [], "rights that nobody used"
    assert sorted(UNUSED.keys() - rights) == [], "explained, and not granted"


def test_owners_of_any_object_may_be_read():
    """When a part went, its owner may have gone unheard of: the controllers ask."""
    searches = (experiment.experiment_kind(Evaluators()), trial.trial_kind(Evaluators()))
    trees = (jobset.jobset_kind(""), trainjob.trainjob_kind(Runtimes()), *searches)
    rights = granted("gangsched")
    for kind in (*FRAMEWORKS.values(), *trees):
        if kind.kind == "MXJob":
            continue  # it is only told why it is not run
        assert (kind.api_version.split("/")[0], kind.plural, "get") in rights
