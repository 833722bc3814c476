"""The label of the leading pod, which a Service selects."""

import contextlib
import os

import msgspec

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import NotFound

LEADER_LABEL = "gangsched.io/leader"


async def mark_leader(client: KubeClient) -> bool:
    """Label only the pod of this process as the leader, so that a Service selects it.

    Return whether this process runs in a pod, as only pods have labels.
    """
    namespace, name = os.environ.get("POD_NAMESPACE"), os.environ.get("POD_NAME")
    if not namespace or not name:
        return False
    path = f"/api/v1/namespaces/{namespace}/pods"
    listed = msgspec.json.decode(await client.get(path, labelSelector=f"{LEADER_LABEL}=true"))
    for pod in listed["items"]:
        other = pod["metadata"]["name"]
        if other != name:
            with contextlib.suppress(NotFound):
                await client.patch(
                    f"{path}/{other}", {"metadata": {"labels": {LEADER_LABEL: None}}}
                )
    await client.patch(f"{path}/{name}", {"metadata": {"labels": {LEADER_LABEL: "true"}}})
    return True
