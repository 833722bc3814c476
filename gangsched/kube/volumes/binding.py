"""Bind the claims of a gang that wait for their first consumer: all of them or none.

This does for a gang what kube-scheduler's AssumePodVolumes and BindPodVolumes do for one pod.
Members with such claims are held until all other members of the gang are at the barrier. Then each
claim gets a volume that exists, or a new volume for its pod's node. New volumes come first, because
they fail most often. The gang passes the barrier once all claims are bound. If a claim is refused
or late, the selected nodes of the other claims are taken back, and no pod is bound.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.gangs.member import State
from gangsched.core.model.ids import GangId, PodUid
from gangsched.kube.actuation.pod_binding import BinderContext
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, KubeError, NotFound
from gangsched.kube.client.paths import object_path
from gangsched.kube.volumes import storage_objects as read
from gangsched.kube.volumes.binding_pass import FailedError, Pass
from gangsched.kube.volumes.eligible_nodes import Volumes
from gangsched.kube.volumes.matching import prebound, suits
from gangsched.kube.volumes.storage_objects import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    Claim,
    Key,
    Volume,
)
from gangsched.kube.volumes.volume_choice import VolumeChooser

_PATIENCE = 0.9
"""Fraction of the gang's remaining time: the claim's failure must be reported before the gang's."""


class VolumeBinder:
    """Holds members at the barrier until the claims of their whole gang are bound."""

    def __init__(
        self,
        context: BinderContext,
        volumes: Volumes,
        client: KubeClient,
    ) -> None:
        self._engine, self._pods = context.engine, context.pods
        self._observe, self._now_s = context.observe, context.now_s
        self._volumes, self._client = volumes, client
        self._chooser = VolumeChooser(context.engine.view, volumes)
        volumes.binds, volumes.on_change = True, self._changed
        self._held: dict[GangId, dict[PodUid, o.Prepare]] = {}
        self._passes: dict[GangId, Pass] = {}
        self._gangs: dict[PodUid, GangId] = {}
        self._waiting: list[asyncio.Future[None]] = []

    # -- held members -------------------------------------------------------------------------

    def hold(self, order: o.Prepare) -> bool:
        """Hold a member that has claims to be bound; return whether it has any."""
        if not any(self._unsettled(use.key) for use in self._volumes.uses(order.uid)):
            return False
        self._held.setdefault(order.gang, {})[order.uid] = order
        self._gangs[order.uid] = order.gang
        return True

    def _unsettled(self, key: Key) -> bool:
        claim = self._volumes.claims.get(key)
        return claim is None or claim.alone or not self._volumes.bound(claim)

    def on_arrival(self, gang: GangId) -> None:
        """Start to bind claims if only members held here keep their gang before the barrier."""
        held, state = self._held.get(gang), self._engine.view.gangs.get(gang)
        if not held or state is None or gang in self._passes:
            return
        if state.state is not State.PLACED and state.members.before_barrier() > len(held):
            return
        pods: dict[Key, list[o.Prepare]] = {}
        for order in held.values():
            for use in self._volumes.uses(order.uid):
                pods.setdefault(use.key, []).append(order)
        until_s, timeout_s = state.bind_by_s(), self._engine.limits.schedule_timeout_s
        left_s = timeout_s if until_s is None else until_s - self._now_s()
        first = next(iter(held.values())), "its claims were not looked at"
        limit_s = max(left_s * _PATIENCE, 0.0)
        binding = Pass(gang, dict(held), limit_s, asyncio.timeout(limit_s), pods, first)
        self._passes[gang] = binding
        for key, orders in pods.items():
            self._volumes.going[key] = tuple(dict.fromkeys(order.node for order in orders))
        binding.task = self._pods.start(self._run(binding), waits=True)

    def release(self, uid: PodUid) -> None:
        """Release a held member, because it was sent back or is gone."""
        gang = self._gangs.pop(uid, None)
        if gang is None:
            return
        self._drop_held(gang, uid)
        binding = self._passes.get(gang)
        if binding is not None and uid in binding.orders:
            assert binding.task is not None, "begun with it"  # noqa: S101
            binding.task.cancel()
            self._end(binding, bound=False)
            self.on_arrival(gang)

    def on_bind_refused(self, uid: PodUid) -> None:
        """Release the claims assumed for one pod alone: the pod is not bound."""
        for key in [key for key, pod in self._volumes.alone.items() if pod == uid]:
            del self._volumes.alone[key]
            self._volumes.claim_changed(key)

    def _drop_held(self, gang: GangId, uid: PodUid) -> None:
        held = self._held.get(gang, {})
        held.pop(uid, None)
        if not held:
            self._held.pop(gang, None)

    # -- one gang -----------------------------------------------------------------------------

    async def _run(self, binding: Pass) -> None:
        failed: FailedError | None = None
        try:
            async with binding.limit:
                await self._settle(binding)
        except TimeoutError:
            order, what = binding.awaited
            failed = FailedError(order, f"{what} within {binding.limit_s:.0f} s")
        except FailedError as error:
            failed = error
        except KubeError as error:
            failed = FailedError(binding.awaited[0], str(error))
        self._end(binding, bound=failed is None)
        passed = binding.orders.values() if failed is None else (failed.order,)
        for order in passed:
            self._gangs.pop(order.uid, None)
            self._drop_held(binding.gang, order.uid)
        for order in passed:
            if failed is None:
                self._observe(f.Prepared(order.uid, order.node))
            else:
                reason = str(failed)
                self._observe(f.PrepareFailed(order.uid, order.node, reason, failed.fits))
        self.on_arrival(binding.gang)

    def _end(self, binding: Pass, *, bound: bool) -> None:
        """Remove a pass; if it failed, take back its assumptions and selected nodes."""
        del self._passes[binding.gang]
        classes: dict[str, None] = {}
        for key in binding.pods:
            self._volumes.going.pop(key, None)
            for name in [name for name, of in self._volumes.assumed.items() if of == key]:
                classes[self._volumes.known[name].wanted[0]] = None
                del self._volumes.assumed[name]
        if not bound:
            for uid in binding.orders:
                self.on_bind_refused(uid)
            self._volumes.dropped.update(binding.selected)
            for key, node in binding.selected.items():
                self._pods.start(self._take_back(key, node, binding.call), waits=True)
        for key in binding.pods:
            self._volumes.claim_changed(key)
        for name in classes:
            self._volumes.class_changed(name)

    async def _settle(self, binding: Pass) -> None:
        for key, orders in binding.pods.items():
            binding.awaited = orders[0], f"the claim {key[1]} of its ephemeral volume was not made"
            await self._until(partial(self._there, key, orders[0]))
        given, provisioned = self._chooser.assume(binding)
        for claim in provisioned:
            await self._select(binding, claim)
        await self._until(partial(self._bound, binding, [claim.key for claim in provisioned]))
        for key, volume in given.items():
            await self._keep(binding, key, volume.name)
        await self._until(partial(self._bound, binding, binding.pods))

    def _there(self, key: Key, order: o.Prepare) -> bool:
        if key in self._volumes.claims:
            return key not in self._volumes.dropped
        uses = (use for use in self._volumes.uses(order.uid) if use.key == key)
        if all(use.template is None for use in uses):
            raise FailedError(order, f"there is no PersistentVolumeClaim {key[1]}")
        return False

    # -- what is written ----------------------------------------------------------------------

    def _claim(self, binding: Pass, key: Key) -> Claim:
        claim = self._volumes.claims.get(key)
        if claim is None:
            raise FailedError(binding.pods[key][0], f"PersistentVolumeClaim {key[1]} is gone")
        return claim

    async def _select(self, binding: Pass, claim: Claim) -> None:
        """Select the node of a claim's pod, so that the driver makes a volume for it."""
        key, order = claim.key, binding.pods[claim.key][0]
        nodes = [other.node for other in binding.pods[key]]
        binding.awaited = order, f"PersistentVolumeClaim {key[1]} was not changed"
        while True:
            claim = self._claim(binding, key)
            if claim.volume:
                return
            if claim.selected:
                if claim.selected not in nodes:
                    why = f"the volume of PersistentVolumeClaim {key[1]} is made for node"
                    raise FailedError(order, f"{why} {claim.selected}")
                if not any(key in other.selected for other in self._passes.values()):
                    binding.selected[key] = (
                        claim.selected
                    )  # selected by an earlier leader: this pass takes over
                return
            binding.selected[key] = order.node
            body = {"annotations": {SELECTED_NODE: order.node}}
            try:
                raw = await self._patch(binding, _path(key), claim, body)
            except Conflict:
                await self._read(key)
                continue
            self._volumes.claim(raw)
            return  # not looked at here: the driver may have refused before the answer came

    async def _keep(self, binding: Pass, key: Key, name: str) -> None:
        """Reserve a volume for a claim; the controller of volumes binds it."""
        order = binding.pods[key][0]
        binding.awaited = order, f"PersistentVolume {name} could not be kept for it"
        while True:
            claim, volume = self._claim(binding, key), self._volumes.known.get(name)
            if claim.volume or (volume is not None and volume.of_uid == claim.uid):
                return
            if volume is None or not suits(claim, volume):
                raise FailedError(
                    order,
                    f"PersistentVolume {name} can no longer be had by PersistentVolumeClaim "
                    f"{key[1]}",
                )
            reference = {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": key[0],
                "name": key[1],
                "uid": claim.uid,
                "resourceVersion": claim.version,
            }
            own = {} if prebound(claim, volume) else {BOUND_BY_CONTROLLER: "yes"}
            body, path = {"annotations": own}, object_path("/api/v1/persistentvolumes", name)
            try:
                raw = await self._patch(binding, path, volume, body, spec={"claimRef": reference})
                self._volumes.volume(raw)
            except Conflict:  # the watch delivers the change that came first
                await self._until(partial(self._is_other, name, volume))

    def _is_other(self, name: str, was: Volume) -> bool:
        return self._volumes.known.get(name) != was

    async def _patch(
        self, binding: Pass, path: str, known: Claim | Volume, body: dict[str, Any], **more: object
    ) -> bytes:
        """Change an object at its known version; the end of the pass waits for the answer."""
        metadata = {"uid": known.uid, "resourceVersion": known.version, **body}
        call = self._client.patch(path, {"metadata": metadata, **more})
        binding.call = asyncio.ensure_future(call)
        binding.call.add_done_callback(_looked_at)
        return await asyncio.shield(binding.call)

    def _bound(self, binding: Pass, keys: Iterable[Key]) -> bool:
        """Return whether claims and their volumes are bound to each other."""
        awaited = []
        for key in keys:
            claim, order, wanted = (
                self._claim(binding, key),
                binding.pods[key][0],
                binding.selected.get(key),
            )
            maker = self._volumes.classes.get(claim.class_name)
            by = f" by {maker.provisioner}" if wanted and maker is not None else ""
            if wanted and not claim.volume and claim.selected != wanted:
                raise FailedError(
                    order, f"no volume can be made for PersistentVolumeClaim {key[1]}{by}"
                )
            if not self._volumes.bound(claim):
                awaited.append((order, f"PersistentVolumeClaim {key[1]} was not bound{by}"))
        binding.awaited = awaited[0] if awaited else binding.awaited
        return not awaited

    async def _take_back(self, key: Key, node: str, call: asyncio.Future[bytes] | None) -> None:
        """Take back the selected node of an unbound claim; a volume that exists already stays."""
        try:
            if call is not None:
                await asyncio.wait([call])
            while True:
                claim = await self._read(key)
                if claim.volume or claim.selected != node:
                    return
                metadata = {
                    "uid": claim.uid,
                    "resourceVersion": claim.version,
                    "annotations": {SELECTED_NODE: None},
                }
                try:
                    body = {"metadata": metadata}
                    self._volumes.claim(await self._client.patch(_path(key), body))
                except Conflict:
                    continue
        except NotFound:
            return
        finally:
            self._volumes.dropped.discard(key)
            self._volumes.claim_changed(key)

    async def _read(self, key: Key) -> Claim:
        raw = await self._client.get(_path(key))
        self._volumes.claim(raw)
        return read.claim(raw)

    # -- waiting ------------------------------------------------------------------------------

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            change = asyncio.get_running_loop().create_future()
            self._waiting.append(change)
            await change

    def _changed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            if not change.done():
                change.set_result(None)


def _looked_at(call: asyncio.Future[bytes]) -> None:
    """Retrieve the error of a call that outlived its pass, so that asyncio does not log it."""
    if not call.cancelled():
        call.exception()


def _path(key: Key) -> str:
    return object_path(f"/api/v1/namespaces/{key[0]}/persistentvolumeclaims", key[1])
