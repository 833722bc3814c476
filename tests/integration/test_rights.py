"""The rights of our accounts, compared with what they asked of the API server in all other tests.

Runs last. Nothing may have been forbidden; and a right that nobody used is one too many, unless it
stands below with the reason why no test needs it.
"""

import json

import pytest
from cluster import Cluster
from conftest import AUDITED

from gangsched.local.bootstrap import shipped

NAME = "system:serviceaccount:gangsched-system:"
ACCOUNTS = ("gangsched", "kube-scheduler")
VERBS = {"get", "list", "watch", "create", "update", "patch", "delete"}

Right = tuple[str, str, str]
"""API group, resource with its subresource, verb."""

UNUSED: dict[str, dict[Right, str]] = {"gangsched": {}, "kube-scheduler": {}}


def granted(account: str) -> set[Right]:
    """Return what the shipped roles let an account do."""
    documents = [*shipped("manifests/base"), *shipped("manifests/extender", "rbac.yaml")]
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


def asked(account: str) -> tuple[set[Right], set[tuple[Right, str]]]:
    """Return what an account used, and what it was forbidden, with the path."""
    used, forbidden = set(), set()
    for path in AUDITED:
        with path.open() as log:
            for line in log:
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
def test_nothing_we_asked_for_was_forbidden(cluster: Cluster, account):
    del cluster
    assert not asked(account)[1]


@pytest.mark.parametrize("account", ACCOUNTS)
def test_every_right_is_used_or_explained(request, cluster: Cluster, account):
    if cluster.binding != "extender" or len({i.fspath for i in request.session.items}) < 20:
        pytest.skip("only the whole suite asks for everything")
    used, _ = asked(account)
    unused = granted(account) - used
    explained = UNUSED[account].keys()
    assert sorted(unused - explained) == [], "rights that nobody used"
    assert sorted(explained - granted(account)) == [], "explained, and not granted"
