"""The API server rejects impossible Queues, with a sentence that says why."""

import pytest
import yaml
from kubernetes.client import ApiException

pytestmark = pytest.mark.by("direct")  # binding has no part in what is declared

GPU = "nvidia.com/gpu"


def create(cluster, name, *quotas, **more):
    """Create a Queue, tried out only."""
    body = {"apiVersion": "gangsched.io/v1beta1", "kind": "Queue", "metadata": {"name": name}}
    cluster.custom.create_cluster_custom_object(
        "gangsched.io",
        "v1beta1",
        "queues",
        body | {"spec": {"quotas": quotas, **more}},
        dry_run="All",
    )


@pytest.mark.parametrize(
    ("quotas", "said"),
    [
        ([{"resource": GPU, "nominal": -4}], f"nominal of {GPU} is -4; a quantity of 0 or more"),
        ([{"resource": "cpu", "nominal": "many"}], "nominal of cpu is many; a quantity of 0"),
        (
            [{"resource": "cpu", "nominal": 4, "borrowingLimit": "-500m"}],
            "borrowingLimit of cpu is -500m; a quantity of 0 or more",
        ),
        (
            [{"resource": GPU, "nominal": 4, "lendingLimit": 8}],
            "lendingLimit may not be above nominal: a queue lends what it has",
        ),
        (
            [{"resource": "cpu", "nominal": "1500m", "lendingLimit": "2"}],
            "lendingLimit may not be above nominal: a queue lends what it has",
        ),
        ([{"resource": GPU, "nominal": 1}, {"resource": GPU, "nominal": 2}], "Duplicate value"),
        ([{"resource": "memory", "nominal": "1" * 40}], "may not be more than 32 bytes"),
    ],
)
def test_what_cannot_be_is_refused(cluster, quotas, said):
    with pytest.raises(ApiException) as caught:
        create(cluster, "wrong", *quotas)
    assert caught.value.status == 422
    assert said in yaml.safe_load(caught.value.body)["message"]


@pytest.mark.parametrize("limit", [-8, "-500m", "many"])
def test_a_user_is_not_limited_to_less_than_nothing(cluster, limit):
    with pytest.raises(ApiException) as caught:
        create(cluster, "wrong", userLimits={GPU: limit})
    assert caught.value.status == 422
    message = yaml.safe_load(caught.value.body)["message"]
    assert f"spec.userLimits[{GPU}]" in message
    assert f"{limit} is given; a quantity of 0 or more is allowed" in message


def test_what_can_be_is_not(cluster):
    create(
        cluster,
        "right",
        {"resource": GPU, "gpuKind": "H100", "nominal": 8, "lendingLimit": "8"},
        {"resource": GPU, "gpuKind": "A100", "nominal": 8, "borrowingLimit": 0},
        {"resource": GPU, "nominal": 0},
        {"resource": "memory", "nominal": "2Ti", "lendingLimit": "500Gi"},
        {"resource": "cpu", "nominal": "1500m"},
        userLimits={GPU: 8, "cpu": "500m", "memory": "2Ti"},
    )
