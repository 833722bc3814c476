"""ResourceQuotas are checked for a whole gang."""

import pytest

from gangsched.operators.controllers.resource_quota import (
    exceeded_quota,
    names_uncounted_device,
    total_usage,
)


def pod(**resources) -> dict:
    """Return a pod spec of one container."""
    return {"containers": [{"name": "c", "resources": resources}]}


def quota(hard: dict, used: dict | None = None, **spec) -> dict:
    """Return a ResourceQuota."""
    return {
        "metadata": {"name": "q"},
        "spec": {"hard": hard, **spec},
        "status": {"used": used or {}},
    }


GPU = "nvidia.com/gpu"

CASES = {
    "as many pods as there are": (quota({"pods": "4"}), 4, pod(), False),
    "one too many": (quota({"pods": "4"}, {"pods": "1"}), 4, pod(), True),
    "counted by kind": (quota({"count/pods": "3"}), 4, pod(), True),
    "requests that are the limits": (
        quota({f"requests.{GPU}": "16"}, {f"requests.{GPU}": "8"}),
        4,
        pod(limits={GPU: "4"}),
        True,
    ),
    "cpu in thousandths": (quota({"cpu": "2"}), 4, pod(requests={"cpu": "500m"}), False),
    "cpu by its long name": (
        quota({"requests.cpu": "1900m"}),
        4,
        pod(requests={"cpu": ".5"}),
        True,
    ),
    "memory of limits": (quota({"limits.memory": "4Gi"}), 4, pod(limits={"memory": "2Gi"}), True),
    "what it does not ask for": (quota({"services": "0"}, {"services": "1"}), 4, pod(), False),
    "scopes are the API server's": (
        quota({"pods": "1"}, scopes=["BestEffort"]),
        4,
        pod(),
        False,
    ),
    "by the name that the API server does not count": (
        quota({GPU: "16"}),
        4,
        pod(limits={GPU: "4"}),
        False,
    ),
    "more than all of that": (quota({GPU: "15"}), 4, pod(limits={GPU: "4"}), True),
    "what is unreadable is the API server's": (
        quota({"cpu": "1"}),
        4,
        pod(requests={"cpu": "lots"}),
        False,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_gang_against_a_quota(case):
    given, count, spec, over = CASES[case]
    sentence = exceeded_quota([given], [(count, spec)])
    assert (sentence is not None) == over
    if sentence is not None:
        assert sentence.startswith("exceeded quota: q, requested by all pods")


def test_what_others_of_the_namespace_hold_counts_by_that_name():
    gang = [(4, pod(limits={GPU: "4"}))]
    held_now = {f"requests.{GPU}": 1}
    sentence = exceeded_quota([quota({GPU: "16"})], gang, held_now)
    assert f"{GPU}=16, used: {GPU}=1, limited: {GPU}=16" in sentence
    counted = quota({f"requests.{GPU}": "16"})
    assert exceeded_quota([counted], gang, held_now) is None  # there the API server's word counts


@pytest.mark.parametrize(
    ("name", "is_so"),
    [(GPU, True), (f"requests.{GPU}", False), ("cpu", False), ("count/jobs.batch", False)],
)
def test_names_that_the_api_server_does_not_count(name, is_so):
    assert names_uncounted_device([quota({name: "1"})]) == is_so
    assert not names_uncounted_device([quota({name: "1"}, scopes=["BestEffort"])])


def test_quota_of_pods_and_of_gangs_without_pods():
    spec = pod(limits={GPU: "2"})

    def a_pod(group: str) -> dict:
        labels = {"gangsched.io/pod-group": group} if group else {}
        return {"metadata": {"labels": labels}, "spec": spec}

    def a_group(name: str, count: int, **metadata) -> dict:
        roles = [{"name": "r", "count": count, "template": {"spec": spec}}]
        return {"metadata": {"name": name, **metadata}, "spec": {"roles": roles}}

    pods = [a_pod(""), a_pod("waits"), a_pod("grown"), a_pod("grown"), a_pod("plain")]
    groups = [
        a_group("waits", 4),
        a_group("grown", 1),
        a_group("leaves", 9, deletionTimestamp="now"),
        {"metadata": {"name": "odd"}, "spec": {"roles": [{"count": 1, "template": {"spec": 3}}]}},
        {"metadata": {"name": "plain"}, "spec": {"roles": [{"name": "r", "count": 3}]}},
    ]
    assert total_usage(pods, groups)[f"requests.{GPU}"] == 2 + 8 + 4 + 2
