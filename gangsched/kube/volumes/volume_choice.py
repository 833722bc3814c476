"""Chooses a volume for each claim of a gang that waits for its first consumer."""

from gangsched.core import orders as o
from gangsched.core.engine.view import EngineView
from gangsched.core.model.ids import PodUid
from gangsched.core.model.nodes import Node
from gangsched.kube.volumes.binding_pass import FailedError, Pass
from gangsched.kube.volumes.eligible_nodes import Volumes
from gangsched.kube.volumes.matching import Want, reaches, shared_out
from gangsched.kube.volumes.storage_objects import Claim, Key, Volume


class VolumeChooser:
    """Chooses existing volumes for claims; the other claims get new volumes."""

    def __init__(self, view: EngineView, volumes: Volumes) -> None:
        self._view, self._volumes = view, volumes

    def assume(self, binding: Pass) -> tuple[dict[Key, Volume], list[Claim]]:
        """Choose existing volumes; return them by claim, and the claims that need a new volume."""
        nodes = {uid: self._node(order) for uid, order in binding.orders.items()}
        wants, provisioned = [], []
        for key, orders in binding.pods.items():
            claim = self._volumes.claims[key]
            self._take(claim, orders)
            if self._volumes.bound(claim) or claim.volume:
                continue
            if not self._volumes.waits_for_consumer(claim):
                raise FailedError(orders[0], f"PersistentVolumeClaim {key[1]} is not bound")
            if claim.selected:
                provisioned.append(claim)
                continue
            there = [nodes[order.uid] for order in orders]
            offers = [
                volume
                for volume in self._volumes.offers(claim)
                if all(reaches(volume.terms, node) for node in there)
            ]
            wants.append(Want(claim, offers))
        given = shared_out(wants)
        lacking: dict[PodUid, tuple[o.Prepare, str]] = {}
        for want in wants:
            claim, order = want.claim, binding.pods[want.claim.key][0]
            if claim.key in given:
                continue
            why = self._why_not_made(claim, nodes[order.uid])
            if why:
                lacking[order.uid] = order, f"PersistentVolumeClaim {claim.key[1]}: {why}"
            provisioned.append(claim)
        for order, why in lacking.values():
            together = (uid for uid, other in binding.orders.items() if other.node == order.node)
            raise FailedError(order, why, sum(uid not in lacking for uid in together))
        for key, volume in given.items():
            self._volumes.assumed[volume.name] = key
        for name in {volume.wanted[0] for volume in given.values()}:
            self._volumes.class_changed(name)
        return given, provisioned

    def _node(self, order: o.Prepare) -> Node:
        cluster = self._view.cluster
        row = cluster.rows.get(order.node)
        node = cluster.nodes[row] if row is not None else None
        if node is None:
            raise FailedError(order, "the node is gone")
        return node

    def _take(self, claim: Claim, orders: list[o.Prepare]) -> None:
        """Assign a claim for one pod alone to its pod."""
        for order in orders if claim.alone else ():
            other = self._volumes.used_by(claim.key, order.uid)
            if other:
                name = claim.key[1]
                raise FailedError(
                    order, f"pod {other} has PersistentVolumeClaim {name}, which is for one pod"
                )
            self._volumes.alone[claim.key] = order.uid

    def _why_not_made(self, claim: Claim, node: Node) -> str:
        terms = self._volumes.made_on(claim)
        if isinstance(terms, str):
            return f"{terms} there"
        if reaches(terms, node):
            return ""
        return f"StorageClass {claim.class_name} makes no such volume for this node"
