"""Preempted pods of Kubernetes Jobs that save and exit with 0: their work is not done."""

import pytest
from test_pytorchjob import UNTIL_TOLD, listens, tell

SAVES = """
trap 'touch "$0/saved-$JOB_COMPLETION_INDEX"; exit 0' TERM
[ -e "$0/saved-$JOB_COMPLETION_INDEX" ] && exit 0
touch "$0/begun-$JOB_COMPLETION_INDEX"
while :; do sleep 0.1; done
"""


def work(folder, script, **pod) -> dict:
    """Return the spec of a Job that takes all GPUs of the two nodes."""
    container = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", script],
        "resources": {"limits": {"nvidia.com/gpu": "4"}},
    }
    spec = {
        "containers": [container],
        "restartPolicy": "Never",
        "schedulerName": "gangsched",
        "terminationGracePeriodSeconds": 600,
        **pod,
    }
    listens(spec, folder)
    template = {"spec": spec}
    sizes = {"parallelism": 2, "completions": 2, "backoffLimit": 0}
    return {**sizes, "completionMode": "Indexed", "template": template}


def alone(name, spec) -> dict:
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec}


def in_a_set(name, spec) -> dict:
    part = {"name": "part", "replicas": 1, "template": {"spec": spec}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": [part]},
    }


PREEMPTED = 'gangsched_jobs_preempted_total{kind="JobSet"'


@pytest.fixture
def space(laptop):
    name = laptop.new_namespace()
    yield name
    laptop.remove_namespace(name)


@pytest.mark.parametrize(("made", "job"), [(alone, "train"), (in_a_set, "train-part-0")])
def test_a_job_that_saves_and_ends_with_0_is_not_complete(laptop, space, tmp_path, made, job):
    from kubernetes import client

    priority = f"urgent-{space}"
    client.SchedulingV1Api(laptop.api).create_priority_class(
        {"metadata": {"name": priority}, "value": 1000}
    )
    jobs = client.BatchV1Api(laptop.api)
    counted = laptop.count(PREEMPTED)

    def status():
        return jobs.read_namespaced_job_status(job, space).status

    def exist(what):
        return all((tmp_path / f"{what}-{index}").exists() for index in range(2))

    laptop.kubectl(
        "create", "-n", space, "-f", "-", stdin=laptop.yaml(made("train", work(tmp_path, SAVES)))
    )
    laptop.wait(lambda: exist("begun"), "the job to run", 60)
    urgent = work(tmp_path, UNTIL_TOLD, priorityClassName=priority)
    laptop.kubectl("create", "-n", space, "-f", "-", stdin=laptop.yaml(alone("urgent", urgent)))
    laptop.wait(lambda: exist("saved"), "the job to save", 60)
    ready = lambda: jobs.read_namespaced_job_status("urgent", space).status.ready == 2  # noqa: E731
    laptop.wait(ready, "the urgent job to run", 60)
    found = status()
    assert not found.conditions, "giving way is no end"
    assert not found.succeeded
    assert not found.failed
    tell(tmp_path)
    laptop.wait(lambda: status().succeeded == 2, "the job to end by itself", 90)
    assert not status().failed
    laptop.wait_event(space, "Preempted", f"Preempted by gang {space}/")
    assert laptop.count(PREEMPTED) == counted + (made is in_a_set)
