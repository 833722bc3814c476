"""`gangsched submit` on a real API server: scripts run on process nodes, with srun on all nodes."""

import json
import re
import sys

import pytest

pytestmark = pytest.mark.by("direct")  # the job does not see who binds

PLACE = (
    "--image", "none", "--node-selector", "gangsched.io/node-kind=process",
    "--toleration", "process",
)  # fmt: skip


def submit(cluster, namespace, *words, code=0):
    """Submit; return what the command says."""
    ended, text = cluster.gangsched("submit", *PLACE, "-n", namespace, *words)
    assert ended == code, text
    return text


def submitted(cluster, namespace, *words):
    """Submit; return the number of the job."""
    text = submit(cluster, namespace, *words)
    match = re.fullmatch(r"Submitted batch job (\d+)\n", text)
    assert match, text
    return match[1]


def state(cluster, namespace, number):
    """Return the state of a job as ps lists it."""
    code, text = cluster.gangsched("ps", "-n", namespace, "-t", "all", "-j", number, "-o", "json")
    assert code == 0, text
    return [row["state"] for row in json.loads(text)]


def ended(cluster, namespace, number, wanted="COMPLETED"):
    """Wait for the end of a job; return the log of its first node."""
    cluster.wait(
        lambda: (
            state(cluster, namespace, number)
            and set(state(cluster, namespace, number)) <= {"COMPLETED", "FAILED"}
        ),
        f"job {number} ends",
    )
    code, text = cluster.gangsched("logs", number, "-n", namespace, "--rank", "0")
    assert code == 0, text
    assert set(state(cluster, namespace, number)) == {wanted}, text
    return text


SCRIPT = f"""#!/bin/bash
#SBATCH --job-name=two-nodes   # a comment
#SBATCH -N 2 --ntasks-per-node=2
#SBATCH --gres=gpu:1
#SBATCH --time=10:00
#SBATCH --output=%x-%j.out

echo "job $SLURM_JOB_ID of $SLURM_JOB_NUM_NODES nodes, $SLURM_NTASKS tasks"
first=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
echo "first $first"
srun --label {sys.executable} -c '
import os, socket
peer = os.environ["SLURM_JOB_NODELIST"]
print("rank", os.environ["SLURM_PROCID"], "local", os.environ["SLURM_LOCALID"],
      "node", os.environ["SLURM_NODEID"], "of", os.environ["SLURM_NTASKS"])
'
srun -N 2 -n 2 sh -c 'getent hosts '$first' > /dev/null && echo found'
echo "arguments $1 $2"
"""


def test_a_script_runs_on_two_nodes_with_srun(cluster, namespace, tmp_path):
    file = tmp_path / "train.sh"
    file.write_text(SCRIPT)
    number = submitted(cluster, namespace, str(file), "one", "--two")
    log = ended(cluster, namespace, number)
    lines = log.splitlines()
    assert lines[0] == f"job {number} of 2 nodes, 4 tasks"
    assert lines[1] == f"first two-nodes-{number}-nodes-0-0.two-nodes-{number}"
    ranks = sorted(line for line in lines if "rank" in line)
    assert ranks == [
        "0: rank 0 local 0 node 0 of 4",
        "1: rank 1 local 1 node 0 of 4",
        "2: rank 2 local 0 node 1 of 4",
        "3: rank 3 local 1 node 1 of 4",
    ]
    assert lines.count("found") == 2
    assert lines[-1] == "arguments one --two"
    jobset = cluster.json("jobset", f"two-nodes-{number}", "-n", namespace)
    marks = jobset["metadata"]["annotations"]
    assert marks["gangsched.io/max-runtime-seconds"] == "600"
    pods = cluster.core.list_namespaced_pod(namespace).items
    assert len({pod.spec.node_name for pod in pods}) == 2, "two nodes of Slurm are two nodes"


def test_a_failing_task_ends_the_job_with_its_code(cluster, namespace):
    number = submitted(
        cluster, namespace, "-N2", "--wrap",
        "srun sh -c 'exit $SLURM_PROCID'; code=$?; echo code $code; exit $code",
    )  # fmt: skip
    log = ended(cluster, namespace, number, "FAILED")
    assert "task 1: Exited with exit code 1" in log
    assert "code 1" in log.splitlines()


def test_an_array_is_a_job_for_each_task(cluster, namespace):
    wrap = "echo $SLURM_ARRAY_JOB_ID $SLURM_ARRAY_TASK_ID of $SLURM_ARRAY_TASK_COUNT"
    number = submitted(cluster, namespace, "-a", "1-5:2", "-J", "sweep", "--wrap", wrap)
    cluster.wait(
        lambda: state_of_tasks(cluster, namespace) == ["COMPLETED"] * 3, "all tasks have ended"
    )
    code, text = cluster.gangsched("logs", number, "-n", namespace)
    assert code == 0
    said = sorted(line.split(": ")[1] for line in text.splitlines())
    assert said == [f"{number} {task} of 3" for task in (1, 3, 5)]
    code, text = cluster.gangsched("cancel", number, "--yes", "-n", namespace)
    assert text.count("is cancelled") == 3
    cluster.wait(
        lambda: not [s for s in cluster.json("secrets", "-n", namespace)["items"]
                     if s["metadata"]["name"] == f"sweep-{number}"],
        "the Secret goes with the last task",
    )  # fmt: skip


def state_of_tasks(cluster, namespace):
    """Return the states of all jobs."""
    code, text = cluster.gangsched("ps", "-n", namespace, "-t", "all", "-o", "json")
    assert code == 0, text
    return [row["state"] for row in json.loads(text)]


def test_what_is_not_supported_is_named_at_once_and_nothing_is_created(
    cluster, namespace, tmp_path
):
    file = tmp_path / "job.sh"
    file.write_text("#!/bin/sh\n#SBATCH --account=me --mail-type=END\n#SBATCH -C fast\ntrue\n")
    text = submit(cluster, namespace, str(file), code=2)
    for name in ("--account", "--mail-type", "--constraint"):
        assert name in text
    assert not cluster.json("jobsets,secrets", "-n", namespace)["items"]
    ignore = [
        word for name in ("account", "mail-type", "constraint") for word in ("--ignore", name)
    ]
    number = submitted(cluster, namespace, *ignore, str(file))
    ended(cluster, namespace, number)


def test_nothing_is_left_of_a_submission_that_is_refused(cluster, namespace):
    text = submit(cluster, namespace, "--qos", "no-such-class", "--wrap", "true", code=2)
    assert "--qos: there is no PriorityClass 'no-such-class'" in text
    text = submit(cluster, namespace, "-p", "no-such-queue", "--wrap", "true", code=2)
    assert "--partition: there is no Queue 'no-such-queue'" in text
    cluster.kubectl("create", "quota", "few", "-n", namespace,
                    "--hard=count/jobsets.jobset.x-k8s.io=2")  # fmt: skip
    cluster.wait(
        lambda: cluster.json("resourcequota", "few", "-n", namespace).get("status"),
        "the quota counts",
    )
    text = submit(cluster, namespace, "-a", "1-5", "--wrap", "sleep 100", code=2)
    assert "exceeded quota" in text
    cluster.wait(
        lambda: not cluster.json("jobsets,secrets", "-n", namespace)["items"],
        "the tasks that were created are deleted again",
    )


def test_a_held_job_runs_after_its_release(cluster, namespace):
    number = submitted(cluster, namespace, "-H", "--wrap", "echo done")
    cluster.wait(lambda: state_of_tasks(cluster, namespace) == ["PENDING"], "the job is held")
    code, text = cluster.gangsched("release", number, "-n", namespace)
    assert code == 0, text
    assert "done" in ended(cluster, namespace, number)


def test_a_dry_run_shows_the_objects_without_the_key(cluster, namespace):
    text = submit(cluster, namespace, "--dry-run", "-N", "3", "-G", "h100:12", "--wrap", "true")
    assert "kind: JobSet" in text
    assert "gangsched.io/gpu-kinds: H100" in text
    assert "nvidia.com/gpu: '4'" in text
    assert "key: '...'" in text or "key: ..." in text
    assert not cluster.json("jobsets,secrets", "-n", namespace)["items"]
