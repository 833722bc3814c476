"""Asks any autoscaler for nodes for whole gangs, by placeholder pods.

Each pass compares the placeholders that exist with the gangs. All state but the number of tries is
in the pods, so a process that starts continues where an earlier process stopped.
"""

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from gangsched.api import names
from gangsched.api.timestamps import rfc3339
from gangsched.autoscaling_config import NODES_NAMESPACE, PlaceholderConfig
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import GangId
from gangsched.core.quota.spending import spending_refusal
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, Invalid, NotFound
from gangsched.kube.provisioning.demand import GangDemand, GangDemands
from gangsched.kube.provisioning.passes import (
    Hint,
    guarded,
    in_parallel,
    pass_once,
    repeat_passes,
)
from gangsched.kube.provisioning.placeholders.decide import (
    Tries,
    decide_placeholders,
    next_try,
    pod_count,
)
from gangsched.kube.provisioning.placeholders.pods import (
    GroupKey,
    Placeholder,
    decode_placeholders,
    placeholder_body,
    unschedulable,
)
from gangsched.kube.provisioning.request import required_sets
from gangsched.kube.provisioning.samples import PodSamples
from gangsched.kube.provisioning.templates import PodTemplateError

log = logging.getLogger(__name__)

_PAGE = 500


class PlaceholderPods:
    """Creates, shows and deletes the placeholders of one scheduler."""

    def __init__(
        self,
        client: KubeClient,
        view: EngineView,
        config: PlaceholderConfig | None,
        hint: Hint,
        now_s: Callable[[], float],
    ) -> None:
        """Take the settings; None asks for nothing, and deletes what an earlier setting left."""
        self._client, self._view, self._hint, self._now_s = client, view, hint, now_s
        self._is_used = config is not None
        self._config = config = config or PlaceholderConfig()
        self._samples = PodSamples(client, view)
        self._demands = GangDemands(view, config.after_s, config.gangs_max, config.namespace_max)
        self._tries: dict[str, Tries] = {}
        self._asking: set[GangId] = set()
        """Gangs with placeholders after the last pass."""
        self._path = f"/api/v1/namespaces/{NODES_NAMESPACE}/pods"

    async def run(self) -> None:
        """Repeat passes until cancelled, at once when a gang with placeholders is placed."""
        kind = f"namespace {NODES_NAMESPACE}"
        if not self._is_used:
            await pass_once(self._delete_all)
        await repeat_passes(self.step, kind, wakes=self._some_gang_is_placed)

    async def _delete_all(self) -> None:
        await in_parallel(self._delete, await self._read())

    def _some_gang_is_placed(self) -> bool:
        """Return whether placeholders ask for nodes that a gang no longer needs."""
        gangs = self._view.gangs
        return any(
            gang not in gangs or gangs[gang].state is not State.PENDING for gang in self._asking
        )

    async def step(self) -> None:
        """Compare placeholders with gangs once, and change what differs.

        Raises:
            NotFound: the namespace of placeholders does not exist.

        """
        placeholders, now_s = await self._read(), self._now_s()
        ledger = self._view.ledger
        wants = self._demands.wants({one.gang for one in placeholders}, now_s)
        wants = [want for want in wants if self._may_ask(want)]
        steps = decide_placeholders(
            wants, placeholders, self._tries, ledger.usage, ledger.gpu_types, self._config, now_s
        )
        current = {want.base for want in wants}
        self._tries = {base: tried for base, tried in self._tries.items() if base in current}
        for want, key in steps.late:
            self._note_late(want, key, now_s)
        await in_parallel(self._delete, steps.delete)
        gone = {one.key for one in steps.delete}
        self._asking = {one.gang for one in placeholders if one.key not in gone}
        await in_parallel(self._mark, steps.mark)
        for want, key, missing in steps.create:
            await self._create(want, key, missing)

    async def _read(self) -> list[Placeholder]:
        params = {"labelSelector": f"{names.PLACEHOLDER_LABEL}=true", "limit": str(_PAGE)}
        found, more = await self._page(params)
        while more:
            page, more = await self._page({**params, "continue": more})
            found += page
        return found

    async def _page(self, params: dict[str, str]) -> tuple[list[Placeholder], str]:
        return decode_placeholders(await self._client.get(self._path, **params))

    # -- what is wanted -----------------------------------------------------------------------

    def _may_ask(self, want: GangDemand) -> bool:
        """Return whether placeholders can ask for the nodes of a gang; report once why not."""
        if want.pending is None or want.base is None:
            return True
        problem, gang = "", want.pending.gang
        if pod_count(want) > self._config.pods_max:
            problem = f"it has {pod_count(want)} pods, and {self._config.pods_max} are allowed"
        elif gang.price_max is not None:
            problem = "it has maxPricePerHour, and what its nodes would cost is unknown"
        elif spending_refusal(gang.queue, math.inf, {}, self._view.ledger.usage.tree):
            problem = f"queue {gang.queue} has maxPricePerHour, and what nodes cost is unknown"
        if problem:
            self._refuse(want, problem)
        return not problem

    def _note_late(self, want: GangDemand, key: GroupKey, now_s: float) -> None:
        base, _ = key
        tried = self._tries[base] = next_try(self._tries.get(base, Tries()), self._config, now_s)
        left = self._config.attempts - tried.count
        then = f"They are asked for again in {tried.next_s - now_s:g} s" if left > 0 else (
            f"They were asked for {tried.count} times, and are asked for no more"
        )  # fmt: skip
        message = f"It did not start within {self._config.late_s:g} s after nodes were asked for."
        self._hint(want.gang, f"{message} {then}.", "NodesNotProvisioned")

    def _refuse(self, want: GangDemand, problem: str) -> None:
        """Ask for nothing for a gang until it changes, and report why."""
        self._demands.exclude(want.gang, want.base or "")
        log.warning("no nodes are asked for, for %s: %s", want.gang, problem)
        self._hint(want.gang, f"No nodes can be asked for: {problem[:300]}.", "NodesNotRequested")

    # -- API calls ----------------------------------------------------------------------------

    async def _create(self, want: GangDemand, key: GroupKey, missing: Sequence[int]) -> None:
        """Create the placeholders of a gang; the next pass marks them, if all exist by then."""
        if want.pending is None:
            return
        sets = required_sets(want.pending)
        total = sum(pods.count for pods in sets)
        try:
            samples = await self._samples.read(want.gang, sets)
            pods = [pod for pod, one in zip(samples, sets, strict=True) for _ in range(one.count)]
            bodies = [
                placeholder_body(want.gang, key, index, total, pods[index]) for index in missing
            ]
        except NotFound:
            return  # a pod of the gang is gone; the next pass sees it
        except PodTemplateError as error:
            self._refuse(want, str(error))
            return
        try:
            await in_parallel(self._post, bodies)
        except Invalid as error:
            self._refuse(want, str(error))
            return
        self._asking.add(want.gang)
        if len(missing) == total:
            count = f"{total} placeholder {'pod asks' if total == 1 else 'pods ask'}"
            message = f"{count} the autoscaler for nodes, attempt {key[1]}."
            log.info("%s: %s", want.gang, message)
            self._hint(want.gang, message, "NodesRequested")

    async def _post(self, body: dict[str, Any]) -> None:
        try:
            await self._client.create(self._path, body)
        except Conflict:
            return  # an earlier call created it

    async def _mark(self, one: Placeholder) -> None:
        path = f"{self._path}/{one.name}/status"
        status = unschedulable(one.gang, rfc3339(self._now_s()))
        body = {**status, "metadata": {"uid": one.uid}}
        await guarded(f"placeholder {one.name}", self._client.patch(path, body))

    async def _delete(self, one: Placeholder) -> None:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        options["preconditions"] = {"uid": one.uid}

        async def delete() -> None:
            try:
                await self._client.delete(f"{self._path}/{one.name}", options)
            except (NotFound, Conflict):
                return

        await guarded(f"placeholder {one.name}", delete())
