"""Records of gangs that ended, on a real API server: a restart, other tenants, and the page."""

import asyncio
import contextlib
import json
import urllib.request
from datetime import datetime

import aiohttp
import pytest
from pages import Shell
from test_user_jobs import plain_job
from waiting import patience_s

pytestmark = pytest.mark.by("direct")  # the recorder does not see who binds


def records(cluster, namespace, *options):
    """Return the records of a namespace by name."""
    code, text = cluster.gangsched("history", "-n", namespace, "-o", "json", *options)
    assert code == 0, text
    return {row["name"]: row for row in json.loads(text)}


def ended(cluster, namespace, name):
    """Return the record of a gang, once it is there."""
    return cluster.wait(lambda: records(cluster, namespace).get(name), f"the record of {name}")


def remove(cluster, namespace, name):
    """Delete a gang and its pods."""
    cluster.kubectl("delete", "podgroups.gangsched.io", name, "-n", namespace)
    cluster.kubectl("delete", "pods", "-l", f"gangsched.io/pod-group={name}", "-n", namespace)


def token(cluster, namespace, right: str) -> str:
    """Return a token of an account that may list PodGroups of its namespace."""
    cluster.kubectl("create", "role", right, "-n", namespace, "--verb=list",
                    "--resource=podgroups.gangsched.io")  # fmt: skip
    cluster.kubectl("create", "rolebinding", right, "-n", namespace, f"--role={right}",
                    f"--serviceaccount={namespace}:default")  # fmt: skip
    return cluster.kubectl("create", "token", "default", "-n", namespace).strip()


async def asked(cluster, owner, **params):
    """Ask the leader for records; return the status, and the names of gangs."""
    url = cluster.plane.info()["metrics"].replace("/metrics", "/history")
    headers = {"Authorization": f"Bearer {owner}"}
    timeout = aiohttp.ClientTimeout(patience_s(30))
    async with (
        aiohttp.ClientSession(timeout=timeout) as session,
        session.get(url, headers=headers, params=params) as answer,
    ):
        text = await answer.text()
    return answer.status, [row["name"] for row in json.loads(text)] if answer.ok else text


def test_jobs_and_groups_are_recorded(cluster, namespace):
    cluster.create_job(namespace, plain_job("works", "sleep 1"))
    cluster.create_job(namespace, plain_job("fails", "exit 3"))
    cluster.gang(namespace, "wide", 64, gpus=8)
    cluster.wait(lambda: cluster.group_status(namespace, "wide").get("refusal"), "the refusal")
    works, fails = (ended(cluster, namespace, f"job:{name}") for name in ("works", "fails"))
    assert (works["state"], works["pods"], works["runs"]) == ("Completed", 2, 1)
    assert works["elapsed"] >= 1
    assert works["elapsed"] < works["gpuhours"] * 3600 <= 2 * works["elapsed"] + 1e-6
    assert works["nodes"]
    assert fails["state"] == "Failed"
    assert "wide" not in records(cluster, namespace)
    remove(cluster, namespace, "wide")
    wide = ended(cluster, namespace, "wide")
    assert (wide["state"], wide["start"], wide["runs"]) == ("Cancelled", None, 0)
    assert wide["user"] == "kubernetes-admin"


def test_a_record_outlives_a_restart_and_others_do_not_see_it(cluster, namespace):
    cluster.gang(namespace, "runs", 2, gpus=8)
    cluster.wait_placed(namespace, "runs-", 2)
    begun_s = min(cluster.wait(lambda: _starts(cluster, namespace), "the pods run on their nodes"))
    cluster.restart("gangsched", hard=True)
    cluster.wait(lambda: _leads(cluster), "gangsched leads again")
    remove(cluster, namespace, "runs")
    record = ended(cluster, namespace, "runs")
    assert (record["state"], record["pods"], record["runs"]) == ("Cancelled", 2, 1)
    assert abs(record["start"] - begun_s) <= 60
    assert record["gpuhours"] > 0

    own, other = token(cluster, namespace, "lists"), cluster.new_namespace()
    try:
        stranger = token(cluster, other, "lists")
        status, names = asyncio.run(asked(cluster, own, namespaces=namespace))
        assert (status, names) == (200, ["runs"])
        for owner, params in ((stranger, {"namespaces": namespace}), (own, {})):
            status, text = asyncio.run(asked(cluster, owner, **params))
            assert status == 403
            assert "may not list podgroups.gangsched.io" in text
        assert asyncio.run(asked(cluster, stranger, namespaces=other)) == (200, [])
        assert asyncio.run(asked(cluster, "nonsense", namespaces=namespace))[0] == 401
    finally:
        cluster.remove_namespace(other)


def _leads(cluster):
    url = cluster.plane.info()["metrics"].replace("/metrics", "/readyz")
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=patience_s(5)) as answer:
        return answer.read() == b"leading"
    return False


def _starts(cluster, namespace):
    pods = cluster.json("pods", "-n", namespace)["items"]
    times = [pod["status"].get("startTime") for pod in pods]
    return [datetime.fromisoformat(text).timestamp() for text in times] if all(times) else None


def test_the_page_lists_and_replays(cluster, namespace, tmp_path):
    """docs/history.md, with the file of this control plane beside the kubeconfig."""
    cluster.gang(namespace, "one", 1, gpus=8)
    cluster.wait_placed(namespace, "one-", 1)
    remove(cluster, namespace, "one")
    ended(cluster, namespace, "one")
    shell = Shell(tmp_path, cluster.plane.kubeconfig, namespace)
    (tmp_path / "history.db").symlink_to(cluster.plane.folder / "history.db")
    said = shell.walk("docs/history.md", "List", "Replay")
    assert "one" in said["gangsched history"]
    assert "Cancelled" in said["gangsched history"]
    assert "GANGS" in said["gangsched history --by queue"]
