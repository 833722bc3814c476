"""How objects of other controllers say that they ended."""

import pytest

from gangsched.core.model.dependencies import Outcome
from gangsched.kube.decoding.external.outcomes import job_outcome, ray_job_outcome


@pytest.mark.parametrize(
    ("deployment", "job", "outcome"),
    [
        ("Complete", "SUCCEEDED", Outcome.SUCCEEDED),
        ("Complete", "FAILED", Outcome.FAILED),
        ("Complete", "STOPPED", Outcome.FAILED),
        ("Failed", "", Outcome.FAILED),
        ("Retrying", "FAILED", None),  # an attempt failed, and the next one comes
        ("Running", "SUCCEEDED", None),
        ([], {}, None),
        (None, None, None),
    ],
)
def test_a_ray_job(deployment, job, outcome):
    assert ray_job_outcome({"jobDeploymentStatus": deployment, "jobStatus": job}) is outcome


@pytest.mark.parametrize(
    "conditions",
    [None, "text", {"type": "Failed"}, [None, "x", {}, {"type": ["Failed"], "status": "True"}]],
)
def test_a_malformed_status_says_nothing(conditions):
    assert job_outcome({"conditions": conditions}) is None


@pytest.mark.parametrize("kind", ["Complete", "Completed", "Succeeded", "Failed"])
def test_only_a_true_condition_counts(kind):
    false = {"type": kind, "status": "False"}
    assert job_outcome({"conditions": [false]}) is None
    wanted = Outcome.FAILED if kind == "Failed" else Outcome.SUCCEEDED
    assert job_outcome({"conditions": [false, {"type": kind, "status": "True"}]}) is wanted
