"""Quotas asked for a whole gang."""

import pytest

from gangsched.operators.quota import exceeded


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
    sentence = exceeded([given], [(count, spec)])
    assert (sentence is not None) == over
    if sentence is not None:
        assert sentence.startswith("exceeded quota: q, requested by all pods")
