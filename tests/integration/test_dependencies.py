"""Dependencies and series on a real API server: jobs of `gangsched submit` on process nodes."""

import json
import re

import pytest

pytestmark = pytest.mark.by("direct")  # the job does not see who binds

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
    groups = cluster.json("get", "podgroups.gangsched.io", "-n", namespace)["items"]
    found = (group.get("status", {}).get("refusal") for group in groups)
    messages = (group.get("status", {}).get("message", "") for group in groups)
    return [(why["reason"], text) for why, text in zip(found, messages, strict=True) if why]


def test_a_chain_waits_for_success_and_a_failure_stops_it(cluster, namespace, tmp_path):
    gate = tmp_path / "go"
    wrap = f"while ! test -e {gate}; do sleep 0.2; done"
    first = submitted(cluster, namespace, "-J", "first", "--wrap", wrap)
    second = submitted(
        cluster, namespace, "-J", "second", "-d", f"afterok:{first}", "--wrap", "exit 1"
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
    gate.touch()
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


def test_an_array_runs_as_many_tasks_as_its_limit(cluster, namespace, tmp_path):
    wrap = (
        f"cd {tmp_path}; touch on-$SLURM_ARRAY_TASK_ID; ls on-* | wc -l >> seen; "
        "sleep 1; rm on-$SLURM_ARRAY_TASK_ID"
    )
    submitted(cluster, namespace, "-a", "1-5%2", "-J", "sweep", "--wrap", wrap)
    cluster.wait(lambda: states(cluster, namespace) == ["COMPLETED"] * 5, "all tasks have ended")
    seen = [int(line) for line in (tmp_path / "seen").read_text().split()]
    assert len(seen) == 5
    assert max(seen) <= 2
