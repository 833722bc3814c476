"""Sets up a new control plane: CRDs, permissions, admission policies, nodes."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import yaml

from gangsched.api import names
from gangsched.kube.client.client import APPLY, KubeClient
from gangsched.kube.client.errors import Conflict, NotFound, Unavailable
from gangsched.kube.decoding.users import policies_served
from gangsched.local.commands import ALIASES, SCHEDULER
from gangsched.local.nodes import NodeFile
from gangsched.shipped import shipped

_MANAGER = "kubectl"
"""Field manager: the default of kubectl, so that kubectl may apply manifests over these."""

_KWOK_POLICY = Path(__file__).parent / "kwok-policy.yaml"
_AT_ONCE = 32
_WITHIN_S = 120.0
"""How long an API server may take to serve new objects: seconds, longer on busy cores."""


def bootstrap(
    kubeconfig: Path,
    nodes: NodeFile,
    *,
    gate: bool,
    topology: bool = False,
    tracking: bool = False,
) -> None:
    """Apply the shipped manifests and create the nodes; the admission policies act later.

    With `topology` the nodes have their Topology, and with `tracking` gangsched may show runs.
    """
    more = spelt(nodes) if topology else []
    more += shipped("manifests/tracking", "rbac.yaml") if tracking else []
    asyncio.run(_bootstrap(kubeconfig, nodes, more, gate=gate))


def wait_for_policies(kubeconfig: Path) -> None:
    """Wait until the admission policies act, on a new or restarted API server.

    Raises:
        TimeoutError: they do not act in time.

    """

    async def wait() -> None:
        async with KubeClient(kubeconfig) as client:
            if await policies_served(client) == "v1":
                for kind in _STAMPED:
                    await _stamped(client, kind)

    asyncio.run(wait())


async def _bootstrap(
    kubeconfig: Path, nodes: NodeFile, more: list[dict[str, Any]], *, gate: bool
) -> None:
    async with KubeClient(kubeconfig) as client:
        documents = [*shipped("crds"), *shipped("crds/foreign"), *shipped("manifests/base")]
        documents += shipped("manifests/runtimes")
        documents += shipped("manifests/extender", "rbac.yaml")
        if gate:
            documents += shipped("manifests/extender", "gate.yaml")
        documents += yaml.safe_load_all(_KWOK_POLICY.read_text())
        documents += more
        documents = [_for_aliases(document) for document in documents]
        if await policies_served(client) != "v1":
            documents = [d for d in documents if not d["kind"].startswith(_MUTATING)]
        documents.sort(key=lambda document: document["kind"] != "Namespace")
        for document in documents:
            await apply(client, document)
        slots = asyncio.Semaphore(_AT_ONCE)
        manifests = [manifest for group in nodes.of_kind("kwok") for manifest in group.manifests()]
        await asyncio.gather(*(_create_node(client, slots, manifest) for manifest in manifests))
        for crd in (d for d in documents if d["kind"] == "CustomResourceDefinition"):
            await _established(client, crd["metadata"]["name"])


def spelt(nodes: NodeFile) -> list[dict[str, Any]]:
    """Return the shipped Topology with the levels of the nodes' labels, if there are any."""
    (document,) = shipped("manifests/topologies", "local.yaml")
    have = {key for group in nodes.nodes for key in group.label_keys()}
    levels = [level for level in document["spec"]["levels"] if level["nodeLabel"] in have]
    document["spec"]["levels"] = levels
    return [document] if levels else []


def _for_aliases(policy: dict[str, Any]) -> dict[str, Any]:
    """Return a policy that applies to pods of the aliases too, which gangsched serves here."""
    known = json.dumps([SCHEDULER, *ALIASES])
    if not policy["kind"].endswith("AdmissionPolicy"):
        return policy
    for condition in policy["spec"].get("matchConditions", []):
        if condition["name"] == "ours":
            condition["expression"] = condition["expression"].replace(
                f'== "{SCHEDULER}"', f"in {known}"
            )
    return policy


async def apply(client: KubeClient, document: dict[str, Any]) -> None:
    """Apply one document server-side."""
    path = f"{_collection(document)}/{document['metadata']['name']}"
    deadline_s = time.monotonic() + _WITHIN_S
    while True:
        try:
            await client.patch(path, document, APPLY, fieldManager=_MANAGER, force="true")
        except NotFound:  # the namespace or the CRD is not established yet
            if time.monotonic() > deadline_s:
                raise NotFound(404, f"{path}: the API does not serve this kind") from None
            await asyncio.sleep(0.1)
        else:
            return


_MUTATING = "MutatingAdmissionPolicy"
"""Kubernetes before 1.36 does not serve it by default: pods are not gated there."""

_PLURALS = {"NetworkPolicy": "networkpolicies", "PriorityClass": "priorityclasses"}
_CLUSTER = frozenset(
    {
        "Namespace",
        "ClusterRole",
        "ClusterRoleBinding",
        "ClusterTrainingRuntime",
        "CustomResourceDefinition",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "PriorityClass",
        "Topology",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
)


def _collection(document: dict[str, Any]) -> str:
    version, kind = document["apiVersion"], document["kind"]
    plural = _PLURALS.get(kind, _plural(kind))
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    if kind in _CLUSTER:
        return f"{root}/{plural}"
    namespace = document["metadata"].get("namespace", "default")
    return f"{root}/namespaces/{namespace}/{plural}"


def _plural(kind: str) -> str:
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}s"


async def _create_node(
    client: KubeClient, slots: asyncio.Semaphore, manifest: dict[str, Any]
) -> None:
    async with slots:
        try:
            await client.create("/api/v1/nodes", manifest)
        except Conflict:
            return


async def _established(client: KubeClient, name: str) -> None:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    deadline_s = time.monotonic() + _WITHIN_S
    while time.monotonic() < deadline_s:
        crd = json.loads(await client.get(path))
        conditions = crd.get("status", {}).get("conditions", [])
        if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(f"CRD {name} was not established within {_WITHIN_S:g} s")


_STAMPED_EVERY_S = 0.3
"""Each try takes CPU that the API server needs to start, and it may be seconds until one works."""

_STAMPED = (
    {
        "apiVersion": f"{names.GROUP}/{names.VERSION}",
        "kind": "PodGroup",
        "metadata": {"name": "probe"},
        "spec": {"minMember": 1},
    },
    {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": "probe"},
        "spec": {
            "pytorchReplicaSpecs": {
                "Master": {"template": {"spec": {"containers": [{"name": "pytorch"}]}}}
            }
        },
    },
)


async def _stamped(client: KubeClient, probe: dict[str, Any]) -> None:
    """Wait until the admission policy writes the user into a kind, tried by a dry run.

    Policies learn new schemas every 5 s, and all of them after a restart of the API server. Until
    then it refuses what they match with 503, whatever their failurePolicy says, or admits it
    without them (k8s.io/apiserver, pkg/admission/plugin/policy/mutating/patch/typeconverter.go).
    """
    path, why = _collection(probe), "the user was not written"
    deadline_s = time.monotonic() + _WITHIN_S
    while time.monotonic() < deadline_s:
        try:
            answer = await client.request(
                "POST", path, body=probe, params={"dryRun": "All"}, tries=1
            )
            if names.USER_ANNOTATION in json.loads(answer)["metadata"].get("annotations", {}):
                return
        except Unavailable as error:
            why = str(error)
        await asyncio.sleep(_STAMPED_EVERY_S)
    raise TimeoutError(
        f"the admission policy does not act on {probe['kind']}s after {_WITHIN_S:g} s: {why}"
    )
