"""ps, top, logs, cancel, hold and release on a real API server, with jobs of several kinds."""

import json
import os
from unittest.mock import patch

import pytest
import yaml
from cluster import GPU
from test_jobset import jobset, replicated
from test_pytorchjob import TOLERATE, UNTIL_TOLD, job, listens, tell

pytestmark = pytest.mark.by("extender")  # the commands read objects, however pods are bound


def rows(cluster, namespace, *options):
    """Return what ps says, by name."""
    code, text = cluster.gangsched("ps", "-n", namespace, "-o", "json", *options)
    assert code == 0, text
    return {row["name"]: row for row in json.loads(text)}


def said(cluster, namespace, *words, code=0):
    """Run a command for a namespace; return what it says."""
    ended, text = cluster.gangsched(*words, "-n", namespace)
    assert ended == code, text
    return text


def plain_job(name, command):
    """Return a Job of ours with two pods on process nodes."""
    container = {
        "name": "main",
        "image": "none",
        "command": ["sh", "-c", command],
        "resources": {"requests": {"cpu": "500m"}, "limits": {GPU: "1"}},
    }
    spec = {
        "schedulerName": "gangsched",
        "containers": [container],
        "restartPolicy": "Never",
        "tolerations": TOLERATE,
        "nodeSelector": {"gangsched.io/node-kind": "process"},
        "terminationGracePeriodSeconds": 0,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "parallelism": 2,
            "completions": 2,
            "completionMode": "Indexed",
            "backoffLimit": 0,
            "template": {"spec": spec},
        },
    }


def gang_job(name, pods):
    """Return a Job with pods that start together."""
    body = plain_job(name, "sleep 1")
    body["spec"] |= {"parallelism": pods, "completions": pods}
    labels = {"gangsched.io/pod-group": name, "gangsched.io/min-member": str(pods)}
    body["spec"]["template"]["metadata"] = {"labels": labels}
    return body


def test_jobs_are_listed_with_state_nodes_and_reason(cluster, namespace, tmp_path):
    body = plain_job("plain", f"echo rank $JOB_COMPLETION_INDEX; {UNTIL_TOLD}")
    listens(body["spec"]["template"]["spec"], tmp_path)
    cluster.create_job(namespace, body)
    cluster.create_job(namespace, jobset(replicated("wide", "true", pods=9, gpus=4), name="wide"))
    cluster.gang(namespace, "bare", 2, gpus=1)
    cluster.wait(
        lambda: (
            rows(cluster, namespace).get("plain", {}).get("state") == "RUNNING"
            and rows(cluster, namespace).get("bare", {}).get("state") == "RUNNING"
            and rows(cluster, namespace).get("wide", {}).get("reason") not in ("", "Created", None)
        ),
        "two jobs run and one has its reason",
    )
    found = rows(cluster, namespace)
    assert (found["plain"]["kind"], len(found["plain"]["nodes"])) == ("Job", 1)
    assert found["wide"]["state"] == "PENDING"
    assert found["wide"]["message"]
    assert set(rows(cluster, namespace, "-t", "PD")) == {"wide"}
    assert set(rows(cluster, namespace, "-j", "bare,plain")) == {"bare", "plain"}
    table = said(cluster, namespace, "ps")
    assert all(len(line) <= 80 for line in table.splitlines()), table
    assert f"({found['wide']['reason']})" in table
    assert "no state" in said(cluster, namespace, "ps", "-t", "XX", code=2)

    _, text = cluster.gangsched("top", "-n", namespace, "-o", "json")
    held = {row["name"]: row for row in json.loads(text)}
    assert (held["plain"]["pods"], held["plain"]["gpus"], held["plain"]["cores"]) == (2, 2, 1.0)
    assert "wide" not in held

    log = said(cluster, namespace, "logs", "plain")
    ranks = [line.split(": ")[1] for line in log.splitlines()]
    assert ranks == ["rank 0", "rank 1"]
    assert "rank 1" in said(cluster, namespace, "logs", "plain", "--rank", "1")
    tell(tmp_path)
    cluster.wait(
        lambda: rows(cluster, namespace, "-t", "CD").get("plain", {}).get("state") == "COMPLETED",
        "the job is listed as completed",
    )
    assert "plain" not in rows(cluster, namespace)
    assert said(cluster, namespace, "logs", "-f", "plain").count("rank") == 2


@pytest.mark.parametrize("kind", ["PyTorchJob", "JobSet", "Job"])
def test_a_pending_job_is_held_released_and_cancelled(cluster, namespace, kind):
    bodies = {
        "PyTorchJob": job("j", workers=60, command=["sleep", "1"]),
        "JobSet": jobset(replicated("w", "sleep 1", pods=9, gpus=4), name="j"),
        "Job": gang_job("j", 60),
    }
    cluster.create_job(namespace, bodies[kind])
    cluster.wait(
        lambda: rows(cluster, namespace).get("j", {}).get("message"), "it has a reason", 10.0
    )
    assert said(cluster, namespace, "hold", "j") == f"{kind} {namespace}/j is held.\n"
    assert "is held already" in said(cluster, namespace, "hold", "j")
    cluster.wait(
        lambda: rows(cluster, namespace)["j"]["reason"] == "JobHeldUser", "it is held by its user"
    )
    assert "is released" in said(cluster, namespace, "release", "j")
    assert "is not held" in said(cluster, namespace, "release", "j")
    cluster.wait(
        lambda: rows(cluster, namespace)["j"]["reason"] not in ("JobHeldUser", "Created"),
        "it waits for capacity again",
    )
    assert said(cluster, namespace, "cancel", "j") == f"{kind} {namespace}/j is cancelled.\n"
    cluster.wait(lambda: "j" not in rows(cluster, namespace), "it is gone")
    assert "there is no job 'j'" in said(cluster, namespace, "cancel", "j", code=2)


def test_a_running_job_is_not_held_and_many_are_cancelled_only_by_consent(
    cluster, namespace, tmp_path
):
    for name in ("one", "two"):
        body = plain_job(name, UNTIL_TOLD)
        listens(body["spec"]["template"]["spec"], tmp_path)
        cluster.create_job(namespace, body)
    cluster.wait(
        lambda: [row["state"] for row in rows(cluster, namespace).values()] == ["RUNNING"] * 2,
        "both run",
    )
    assert "runs and cannot be held" in said(cluster, namespace, "hold", "one", code=2)
    with patch("sys.stdin", open(os.devnull)):  # noqa: PTH123 -- nobody answers
        code, text = cluster.gangsched("cancel", "one", "two", "-n", namespace)
    assert code == 1, text
    assert set(rows(cluster, namespace)) == {"one", "two"}
    text = said(cluster, namespace, "cancel", "-t", "R", "--yes")
    assert text.count("is cancelled") == 2
    cluster.wait(lambda: not rows(cluster, namespace), "both are gone")
    assert said(cluster, namespace, "cancel", "-t", "PD") == "No job matches.\n"
    assert "name the jobs" in said(cluster, namespace, "cancel", code=2)


def test_another_account_may_do_only_what_it_may(cluster, namespace, tmp_path):
    cluster.create_job(namespace, gang_job("mine", 60))
    cluster.kubectl("create", "role", "looks", "-n", namespace, "--verb=list,get",
                    "--resource=pods,jobs.batch")  # fmt: skip
    cluster.kubectl("create", "rolebinding", "looks", "-n", namespace, "--role=looks",
                    f"--serviceaccount={namespace}:default")  # fmt: skip
    token = cluster.kubectl("create", "token", "default", "-n", namespace).strip()
    config = yaml.safe_load(cluster.plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token}
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(config))
    options = ("--kubeconfig", str(file))
    cluster.wait(
        lambda: "mine" in said(cluster, namespace, "ps", *options, "-o", "json"), "it is listed"
    )
    for command in ("hold", "cancel"):
        text = said(cluster, namespace, command, "mine", *options, code=2)
        assert f'User "system:serviceaccount:{namespace}:default" cannot' in text
    assert "mine" in rows(cluster, namespace)
    code, text = cluster.gangsched("ps", "-A", *options)
    assert code == 2
    assert "cannot list resource" in text
