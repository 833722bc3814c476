"""`gangsched mcp` with the client of the Model Context Protocol's own package."""

import asyncio
import json
import os
import sys

import pytest
from waiting import patience_s

from gangsched.local.plane import client_environment

pytestmark = pytest.mark.by("extender")  # it reads what the binding wrote

TOOLS = {"explain", "queue", "when", "what_if", "history", "docs"}
JOB = """
apiVersion: gangsched.io/v1beta1
kind: PodGroup
metadata: {name: later}
spec:
  roles:
  - name: worker
    count: 2
    template:
      spec:
        containers: [{name: main, image: none, resources: {limits: {nvidia.com/gpu: 8}}}]
"""


async def asked(environment, arguments, questions):
    """Run the command; return what its tools answer: the values, or the text of an error."""
    from mcp import Client, StdioServerParameters, stdio_client  # takes two seconds to import

    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "gangsched", "mcp", *arguments], env=environment
    )
    answers = []
    async with asyncio.timeout(patience_s(120)), Client(stdio_client(parameters)) as client:
        listed = await client.list_tools()
        assert {tool.name for tool in listed.tools} == TOOLS
        assert all(tool.annotations.read_only_hint for tool in listed.tools)
        for tool, values in questions:
            result = await client.call_tool(tool, values)
            text = result.content[0].text
            answers.append(text if result.is_error else json.loads(text))
    return answers


def test_a_client_session_reads_the_cluster_and_a_snapshot(cluster, namespace, tmp_path):
    cluster.gang(namespace, "before", 1, gpus=8)
    cluster.wait_placed(namespace, "before-", 1)
    cluster.kubectl("delete", "podgroups.gangsched.io/before", "pod/before-0", "-n", namespace)
    cluster.gang(namespace, "runs", 1, gpus=8)
    cluster.wait_placed(namespace, "runs-", 1)
    cluster.gang(namespace, "wide", 64, gpus=8)
    cluster.wait(
        lambda: cluster.group_status(namespace, "wide").get("refusal"), "the gang has its reason"
    )
    cluster.wait(
        lambda: "before" in cluster.gangsched("history", "-n", namespace)[1], "the record of before"
    )
    environment = dict(os.environ) | client_environment(cluster.plane)
    questions = [
        ("explain", {"gang": f"{namespace}/wide"}),
        ("explain", {"gang": f"{namespace}/none"}),
        ("queue", {}),
        ("queue", {"name": "default"}),
        ("when", {"manifest": JOB, "namespace": namespace}),
        ("what_if", {"nodes": ["64:k-0"]}),
        ("what_if", {}),
        ("history", {"namespace": namespace}),
        ("docs", {"query": "srun sbatch"}),
    ]
    wide, none, queues, waiting, when, changed, nothing, ended, docs = asyncio.run(
        asked(environment, (), questions)
    )
    assert wide["gang"]["reason"] == "LargerThanCluster"
    assert [row["name"] for row in ended["rows"]] == ["before"]
    assert f"gang or job '{namespace}/none' does not exist" in none
    assert "default" in [row["queue"] for row in queues["rows"]]
    assert f"{namespace}/wide" in [row["gang"] for row in waiting["rows"]]
    assert when["start"]["gang"] == f"{namespace}/later"
    assert f"{namespace}/wide" in [row["gang"] for row in changed["rows"]]
    assert "give quotas, nodes, priorities, bookings or pools" in nothing
    assert docs["pages"][0]["page"] == "slurm.md"
    assert not [g for g in cluster.json("podgroups.gangsched.io", "-n", namespace)["items"]
                if g["metadata"]["name"] == "later"], "a question creates nothing"  # fmt: skip

    file = tmp_path / "now.jsonl"
    assert cluster.gangsched("snapshot", str(file))[0] == 0
    environment = dict(os.environ) | {"KUBECONFIG": str(tmp_path / "none")}
    (gang,) = asyncio.run(
        asked(environment, ("--snapshot", str(file)), [("explain", {"gang": f"{namespace}/runs"})])
    )
    assert gang["gang"]["state"] == "Placed"
