"""The data cache of a TrainJob: what its pods get, and what is hostile in its fields."""

import base64

import pytest
from test_initializer_rules import initializer, made, pods, steps, variables

from gangsched.core.bounds import CACHE_WORKERS
from gangsched.datacache import protocol
from gangsched.jobs.jobset.stages import stages
from gangsched.jobs.trainer import datacache
from gangsched.operators.job_kind import InvalidJobError

RUNTIME = "torch-with-cache"
TABLE = "cache://digits/train"


def cached(env=(), uri=TABLE, **spec):
    """Return what is done for a job with a cache: variables of its data set by name."""
    listed = [{"name": name, "value": value} for name, value in dict(env).items()]
    return steps(RUNTIME, initializer=initializer(uri=uri, env=listed), **spec)


def test_the_pods_of_a_job_and_no_others_get_the_key():
    actions = cached({"METADATA_LOC": "s3://a-bucket/b"}, trainer={"numNodes": 3})
    secret = made("Secret", actions)
    key = base64.b64decode(secret["data"]["key"]).decode()
    assert protocol.checked_key(key) == key
    assert secret["metadata"]["name"] == "t-cache-key"
    assert key != base64.b64decode(made("Secret", cached())["data"]["key"]).decode()
    found = {name: variables(pod) for name, pod in pods(made("JobSet", actions)).items()}
    reference = {"secretKeyRef": {"name": "t-cache-key", "key": "key"}}
    for name in ("cache-head", "cache-worker", "node"):
        assert found[name]["CACHE_ADDRESS"] == f"t-cache-head-0-0.t:{protocol.PORT}"
        assert found[name]["CACHE_KEY"] == reference
    assert "CACHE_KEY" not in found["dataset-initializer"]
    addresses = ",".join(f"t-cache-worker-0-{index}.t:{protocol.PORT}" for index in range(2))
    assert found["cache-head"]["CACHE_WORKERS"] == addresses
    assert "CACHE_WORKERS" not in found["node"]
    assert protocol.PORT == datacache.PORT


def test_a_job_cannot_choose_its_key():
    own = {"env": [{"name": "CACHE_KEY", "value": "0" * 64}]}
    node = variables(pods(made("JobSet", cached(trainer=own)))["node"])
    assert node["CACHE_KEY"] == {"secretKeyRef": {"name": "t-cache-key", "key": "key"}}


def test_a_runtime_without_a_cache_has_no_key():
    actions = steps("torch-finetuning", initializer=initializer())
    assert [one["kind"] for one in actions.create] == ["JobSet"]


def test_the_sdks_fields_size_the_cache():
    amounts = {"HEAD_CPU": "2", "HEAD_MEM": "3Gi", "WORKER_CPU": "4", "WORKER_MEM": "5Gi"}
    jobset = made("JobSet", cached({"CLUSTER_SIZE": "5", **amounts}))
    jobs = {rjob["name"]: rjob["template"]["spec"] for rjob in jobset["spec"]["replicatedJobs"]}
    assert (jobs["cache-head"]["parallelism"], jobs["cache-worker"]["completions"]) == (1, 4)
    for name, cpu, memory in (("cache-head", "2", "3Gi"), ("cache-worker", "4", "5Gi")):
        resources = jobs[name]["template"]["spec"]["containers"][0]["resources"]
        for part in ("requests", "limits"):
            assert resources[part] == {"cpu": cpu, "memory": memory}


def test_cache_and_nodes_are_one_gang_and_the_initializer_another():
    jobset = made("JobSet", cached({"CLUSTER_SIZE": "4"}, trainer={"numNodes": 2}))
    first, second = stages("t", jobset["spec"])
    assert [job["name"] for job in first.jobs] == ["dataset-initializer"]
    assert [job["name"] for job in second.jobs] == ["cache-head", "cache-worker", "node"]
    assert (first.group, second.group) == ("t-dataset-initializer", "t")
    assert second.early == {"cache-head", "cache-worker"}, "nodes start once the cache is ready"


def test_the_claim_of_a_cache_is_mounted_into_its_initializer_alone():
    jobset = made("JobSet", cached({"METADATA_LOC": "pvc://digits/train"}))
    claims = {
        name: [
            volume["persistentVolumeClaim"]["claimName"]
            for volume in pod.get("volumes") or []
            if "persistentVolumeClaim" in volume
        ]
        for name, pod in pods(jobset).items()
    }
    assert [name for name, listed in claims.items() if "digits" in listed] == [
        "dataset-initializer"
    ]


REFUSED = [
    ({"CLUSTER_SIZE": "1"}, TABLE, "CLUSTER_SIZE '1'; 2 to 65 is allowed"),
    ({"CLUSTER_SIZE": "66"}, TABLE, "CLUSTER_SIZE '66'; 2 to 65 is allowed"),
    ({"CLUSTER_SIZE": "9" * 5_000}, TABLE, "2 to 65 is allowed"),
    ({"CLUSTER_SIZE": "-3"}, TABLE, "2 to 65 is allowed"),
    ({"CLUSTER_SIZE": "٣"}, TABLE, "2 to 65 is allowed"),
    ({}, "cache://a", "cache://SCHEMA/TABLE is allowed"),
    ({}, "cache://a/b/c", "cache://SCHEMA/TABLE is allowed"),
    ({"METADATA_LOC": "pvc://a/../b"}, TABLE, "METADATA_LOC is 'pvc://a/../b'; pvc://CLAIM/PATH"),
    ({"METADATA_LOC": "s3://key:pa55@b/c"}, TABLE, "METADATA_LOC has a user or a password"),
    ({"METADATA_LOC": "s3://" + "a" * 5_000}, TABLE, "METADATA_LOC has 5005 characters"),
]


@pytest.mark.parametrize(("env", "uri", "message"), REFUSED)
def test_a_cache_that_is_hostile_is_refused(env, uri, message):
    with pytest.raises(InvalidJobError) as error:
        cached(env, uri)
    text = str(error.value)
    assert message in text
    assert "pa55" not in text
    assert len(text) < 400


def test_a_model_is_not_read_from_a_cache():
    with pytest.raises(InvalidJobError, match="for a data set alone"):
        steps("torch-finetuning", initializer=initializer("model", TABLE))


@pytest.mark.parametrize("count", [0, -1, CACHE_WORKERS.most + 1, 10**12, "3", True])
def test_a_patch_cannot_make_a_cache_without_bounds(count):
    worker = {"name": "cache-worker", "template": {"spec": {"parallelism": count}}}
    template = {"spec": {"replicatedJobs": [worker]}}
    patch = {"manager": "a.io/b", "trainingRuntimeSpec": {"template": template}}
    with pytest.raises(InvalidJobError, match=r"'cache-worker' has parallelism .*; 1 to 64 work"):
        cached(runtimePatches=[patch])
