"""Dependencies and series on a real API server: jobs of `gangsched submit` on process nodes."""

import json
import re

import pytest

pytestmark = pytest.mark.by("extender")  # the job does not see who binds

PLACE = (
    "--image", "none", "--node-selector", "gangsched.io/node-kind=process",
    "--toleration", "process",
)  # fmt: skip


def submitted(cluster, namespace, *words):
    """Submit; return the number of the job."""
    ended, text = cluster.gangsched("submit", *PLACE, "-n", namespace, *words)
    assert ended == 0, text
    match = re.fullmatch(r"Submitted batch job (\d+)\n", text)
    assert match, text
    return match[1]


def states(cluster, namespace, number=None):
    """Return the states of jobs as ps lists them."""
    which = ("-j", number) if number else ()
    code, text = cluster.gangsched("ps", "-n", namespace, "-t", "all", *which, "-o", "json")
    assert code == 0, text
    return [row["state"] for row in json.loads(text)]


def refusals(cluster, namespace):
    """Return the reason and the message of each PodGroup that waits."""
    groups = cluster.json("podgroups.gangsched.io", "-n", namespace)["items"]
    found = (group.get("status", {}).get("refusal") for group in groups)
    messages = (group.get("status", {}).get("message", "") for group in groups)
    return [(why["reason"], text) for why, text in zip(found, messages, strict=True) if why]


def test_a_chain_waits_for_success_and_a_failure_stops_it(cluster, namespace):
    wrap = "while ! test -e /tmp/go; do sleep 0.2; done"
    first = submitted(cluster, namespace, "-J", "first", "-t", "10", "--wrap", wrap)
    second = submitted(
        cluster, namespace, "-J", "second", "-t", "10", "-d", f"afterok:{first}", "--wrap", "exit 1"
    )
    third = submitted(
        cluster, namespace, "-J", "third", "-d", f"afterok:{second}", "--wrap", "true"
    )
    other = submitted(
        cluster, namespace, "-J", "other", "-d", f"afternotok:{second}", "--wrap", "true"
    )
    cluster.wait(
        lambda: (
            sorted(reason for reason, _ in refusals(cluster, namespace)) == ["WaitsForGang"] * 3
        ),
        "three jobs wait for others",
    )
    _is_explained(cluster, namespace, second, first)
    pod = next(
        pod["metadata"]["name"]
        for pod in cluster.json("pods", "-n", namespace)["items"]
        if pod["metadata"]["name"].startswith("first-")
    )
    cluster.kubectl("exec", "-n", namespace, pod, "--", "touch", "/tmp/go")
    cluster.wait(
        lambda: (
            states(cluster, namespace, first) == ["COMPLETED"]
            and states(cluster, namespace, second) == ["FAILED"]
        ),
        "the first has ended, and the second has failed",
    )
    cluster.wait(
        lambda: states(cluster, namespace, other) == ["COMPLETED"],
        "the job that waits for a failure has run",
    )
    cluster.wait(
        lambda: [reason for reason, _ in refusals(cluster, namespace)] == ["DependencyNeverMet"],
        "the third is told that it never starts",
    )
    assert states(cluster, namespace, third) != ["COMPLETED"]
    cluster.restart("gangsched")
    later = submitted(
        cluster, namespace, "-J", "later", "-d", f"afternotok:{second}", "--wrap", "true"
    )
    cluster.wait(
        lambda: states(cluster, namespace, later) == ["COMPLETED"],
        "the end of the second is known after a restart",
    )


def _is_explained(cluster, namespace, number, other):
    """The start of a gang that waits relies on the end of the other."""
    groups = cluster.json("podgroups.gangsched.io", "-n", namespace)["items"]
    names = {group["metadata"]["name"].rpartition("-")[2]: group for group in groups}
    waits, runs = (f"{namespace}/{names[one]['metadata']['name']}" for one in (number, other))

    def told():
        _, text = cluster.gangsched("explain", waits)  # its code says that the gang is pending
        text = " ".join(text.split())
        return text if f"relies on the end of gang {runs}" in text else None

    assert "to succeed" in cluster.wait(told, "a start that relies on the other gang")


def test_an_array_runs_as_many_tasks_as_its_limit(cluster, namespace):
    wrap = "date +%s.%N; sleep 1; date +%s.%N"
    number = submitted(cluster, namespace, "-a", "1-5%2", "-J", "sweep", "--wrap", wrap)
    cluster.wait(lambda: states(cluster, namespace) == ["COMPLETED"] * 5, "all tasks have ended")
    code, text = cluster.gangsched("logs", number, "-n", namespace)
    assert code == 0, text
    times: dict[str, list[float]] = {}
    for line in text.splitlines():
        task, _, moment = line.partition(": ")
        times.setdefault(task, []).append(float(moment))
    assert len(times) == 5
    for begun_s, _ in times.values():
        assert sum(start_s <= begun_s < end_s for start_s, end_s in times.values()) <= 2


def job(cluster, namespace, name, command, after=""):
    """Create a Job of one pod that is not repeated."""
    spec = {
        "schedulerName": "gangsched",
        "restartPolicy": "Never",
        "nodeSelector": {"gangsched.io/node-kind": "process"},
        "tolerations": [{"key": "process", "operator": "Exists"}],
        "containers": [{"name": "main", "image": "none", "command": ["sh", "-c", command]}],
    }
    notes = {"gangsched.io/after": after} if after else {}
    body = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "annotations": notes},
        "spec": {"backoffLimit": 0, "template": {"spec": spec}},
    }
    cluster.apply(namespace, json.dumps(body))


def test_jobs_without_a_group_follow_each_other(cluster, namespace):
    """A Job that failed stays; its own conditions say how it ended."""

    def ended():
        jobs = cluster.json("jobs", "-n", namespace)["items"]
        return {
            job["metadata"]["name"]: condition["type"]
            for job in jobs
            for condition in job.get("status", {}).get("conditions", [])
            if condition["status"] == "True" and condition["type"] in ("Complete", "Failed")
        }

    job(cluster, namespace, "last", "true", "afterok:good,afternotok:bad")
    job(cluster, namespace, "never", "true", "afterok:bad")
    job(cluster, namespace, "good", "true", "afterany:bad")
    job(cluster, namespace, "bad", "exit 1")
    cluster.wait(
        lambda: ended() == {"bad": "Failed", "good": "Complete", "last": "Complete"},
        "the jobs follow each other",
    )
    cluster.wait_event(namespace, "DependencyNeverMet")
