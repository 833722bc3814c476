"""Requests nodes for gangs that lack nodes, and gives requests up that nothing needs any more.

Each pass compares the requests that exist with the gangs. All state is in the names and conditions
of the requests, so a process that starts continues where an earlier process stopped.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from gangsched.api import names
from gangsched.autoscaling_config import ProvisioningConfig
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import GangId
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, Invalid, KubeError, NotFound
from gangsched.kube.provisioning.decide import decide_requests
from gangsched.kube.provisioning.demand import GangDemand, GangDemands
from gangsched.kube.provisioning.passes import Hint, guarded, repeat_passes
from gangsched.kube.provisioning.request import (
    API,
    GROUP,
    POD_SETS_MAX,
    NodeRequest,
    Phase,
    PodSet,
    consuming,
    decode_requests,
    request_body,
    required_sets,
    template_name,
)
from gangsched.kube.provisioning.samples import PodSamples
from gangsched.kube.provisioning.templates import PodTemplateError, pod_template

log = logging.getLogger(__name__)

_PAGE = 500
_PAGES_MAX = 10
_EVENTS = {
    Phase.PROVISIONED: ("NodesProvisioned", "The nodes are provided by"),
    Phase.FAILED: ("NodesNotProvisioned", "No nodes are provided by"),
    Phase.EXPIRED: ("NodesNotProvisioned", "The nodes are no longer booked by"),
    Phase.REVOKED: ("NodesNotProvisioned", "The nodes were taken away from"),
}


class Provisioner:
    """Creates and deletes the ProvisioningRequests of one scheduler."""

    def __init__(
        self,
        client: KubeClient,
        view: EngineView,
        config: ProvisioningConfig,
        annotations: dict[GangId, Mapping[str, str]],
        hint: Hint,
        now_s: Callable[[], float],
    ) -> None:
        """Take `annotations`, which pods of a gang get when they are bound."""
        self._client, self._view, self._config = client, view, config
        self._annotations, self._hint, self._now_s = annotations, hint, now_s
        self._demands = GangDemands(view, config.after_s, config.requests_max, config.namespace_max)
        self._samples = PodSamples(client, view)
        self._complete: set[str] = set()
        """Requests, by uid, with all their templates."""
        self._reported: dict[str, Phase] = {}

    async def run(self) -> None:
        """Repeat passes until cancelled."""
        await repeat_passes(self.step, f"ProvisioningRequest of {GROUP}/v1")

    async def restore(self) -> None:
        """Read the requests of an earlier process before the first pod is bound."""
        try:
            requests = await self._read()
        except KubeError as error:  # the first pass reads them
            log.info("requests for nodes: %s", error)
            return
        live = (request for request in requests if not request.phase.over)
        self._annotations.update((request.gang, request.annotations) for request in live)

    async def step(self) -> None:
        """Compare requests with gangs once, and change what differs.

        Raises:
            NotFound: the cluster has no such kind.

        """
        requests = await self._read()
        now_s = self._now_s()
        usage, kinds = self._view.ledger.usage, self._view.ledger.gpu_types
        decision = decide_requests(
            self._demands.wants({request.gang for request in requests}, now_s),
            requests,
            usage,
            kinds,
            self._config,
            now_s,
        )
        live = decision.live
        self._annotations.clear()
        self._annotations.update((gang, request.annotations) for gang, request in live.items())
        for request in requests:
            self._report(request)
        uids = {request.uid for request in requests}
        self._complete &= uids
        self._reported = {uid: at for uid, at in self._reported.items() if uid in uids}
        for request in live.values():
            if request.phase is Phase.WAITING and request.uid not in self._complete:
                await guarded(f"request for nodes of {request.gang}", self._finish(request))
        for want, attempt in decision.create:
            await guarded(f"request for nodes of {want.gang}", self._create(want, attempt))
        for request in decision.delete:
            await guarded(f"request for nodes of {request.gang}", self._delete(request))

    # -- what is wanted -----------------------------------------------------------------------

    async def _read(self) -> list[NodeRequest]:
        """Return the requests that we created, of all namespaces."""
        selector = f"{names.PROVISIONING_LABEL}=true"
        path, more = f"{API}/provisioningrequests", ""
        requests: list[NodeRequest] = []
        for _ in range(_PAGES_MAX):  # what is beyond is found once some are deleted
            params = {"labelSelector": selector, "limit": str(_PAGE)}
            content = await self._client.get(path, **params, **({"continue": more} if more else {}))
            page, more = decode_requests(content)
            requests += page
            if not more:
                break
        return requests

    # -- API calls ----------------------------------------------------------------------------

    async def _create(self, want: GangDemand, attempt: int) -> None:
        """Create a request, then its templates, which belong to it."""
        if want.base is None or want.pending is None:
            return
        sets = required_sets(want.pending)
        pods = await self._pods(want.gang, want.base, sets)
        if pods is None:
            return
        config = self._config
        name = f"{want.base}-{attempt}"
        body = request_body(want.gang, name, sets, config.class_name, dict(config.parameters))
        namespace = want.gang.partition("/")[0]
        try:
            answer = await self._client.create(_folder(namespace), body)
        except Conflict:
            return  # an earlier call created it; the next pass reads it
        uid = msgspec.json.decode(answer)["metadata"]["uid"]
        self._annotations[want.gang] = consuming(name, config.class_name)
        log.info("nodes are requested for %s: %s", want.gang, name)
        message = f"Nodes were requested: ProvisioningRequest {name}, attempt {attempt}."
        self._hint(want.gang, message, "NodesRequested")
        await self._create_templates(want.gang, want.base, name, uid, pods)

    async def _finish(self, request: NodeRequest) -> None:
        """Create the templates that an earlier process may not have created."""
        state = self._view.gangs.get(request.gang)
        if state is None or state.state is not State.PENDING:
            return
        sets = required_sets(self._view.pending(request.gang))
        pods = await self._pods(request.gang, request.base, sets)
        if pods is not None:
            await self._create_templates(
                request.gang, request.base, request.name, request.uid, pods
            )

    async def _pods(
        self, gang: GangId, base: str, sets: Sequence[PodSet]
    ) -> list[dict[str, Any]] | None:
        """Return a pod of each set, or None if no request can describe the gang."""
        if len(sets) > POD_SETS_MAX:
            problem = f"it has {len(sets)} different pods, and {POD_SETS_MAX} are allowed"
            self._refuse(gang, base, problem)
            return None
        try:
            return await self._samples.read(gang, sets)
        except PodTemplateError as error:
            self._refuse(gang, base, str(error))
            return None

    async def _create_templates(
        self, gang: GangId, base: str, name: str, uid: str, pods: Sequence[dict[str, Any]]
    ) -> None:
        namespace = gang.partition("/")[0]
        owner = {"apiVersion": f"{GROUP}/v1", "kind": "ProvisioningRequest"}
        owner |= {"name": name, "uid": uid}
        try:
            for at, pod in enumerate(pods):
                body = pod_template(template_name(name, at), pod, owner)
                try:
                    await self._client.create(f"/api/v1/namespaces/{namespace}/podtemplates", body)
                except Conflict:
                    continue
        except (PodTemplateError, Invalid) as error:
            self._refuse(gang, base, str(error))
            return
        self._complete.add(uid)

    def _refuse(self, gang: GangId, base: str, problem: str) -> None:
        """Request nothing for a gang until it changes, and report why."""
        self._demands.exclude(gang, base)
        log.warning("no nodes are requested for %s: %s", gang, problem)
        self._hint(gang, f"No nodes can be requested: {problem[:300]}.", "NodesNotRequested")

    async def _delete(self, request: NodeRequest) -> None:
        """Delete a request by its uid; its templates are deleted with it."""
        body = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": request.uid},
        }
        try:
            await self._client.delete(f"{_folder(request.namespace)}/{request.name}", body)
        except (NotFound, Conflict):
            return
        log.info("the request %s for %s is deleted", request.name, request.gang)

    def _report(self, request: NodeRequest) -> None:
        """Write an Event once a request is fulfilled or over."""
        if self._reported.get(request.uid) is request.phase or request.phase not in _EVENTS:
            return
        self._reported[request.uid] = request.phase
        reason, words = _EVENTS[request.phase]
        says = f": {request.message}" if request.message else "."
        log.info("request %s for %s: %s%s", request.name, request.gang, request.phase, says)
        if request.gang in self._view.gangs:
            self._hint(request.gang, f"{words} ProvisioningRequest {request.name}{says}", reason)


def _folder(namespace: str) -> str:
    return f"{API}/namespaces/{namespace}/provisioningrequests"
