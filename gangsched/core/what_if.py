"""What would be if some gangs ended and others ran: on a copy, in every dimension at once.

Advice, moves, preemption and forecasts ask this. A gang that ends gives back what its pods use on
nodes (requests, GPU shares, host ports), its exclusive domains, the quota of its queue and what
its user holds; a gang that runs takes all of it.
"""

from collections.abc import Collection, Iterable
from dataclasses import replace

from gangsched.core.cluster.state import Cluster
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.placement import Placement
from gangsched.core.model.queues import Amounts
from gangsched.core.quota.charges import charge_on_nodes
from gangsched.core.snapshot import PodPlacement, RunningGang, Snapshot


class WhatIf:
    """A copy of a snapshot's cluster, usage and running gangs that may be changed."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._types = snapshot.rules.gpu_types
        self.cluster = snapshot.cluster.copy()
        self.usage = snapshot.usage.copy()
        self.users = {account: dict(held) for account, held in snapshot.rules.users.items()}

    def release(self, gang: RunningGang) -> None:
        """Take the listed pods of a gang off their nodes and out of its queue."""
        remove_pods(self.cluster, gang.gang.id, gang.places)
        self._charge(gang, -1)

    def hold(self, gang: RunningGang) -> RunningGang:
        """Let a gang run where its pods are; return it with the GPU shares and charge it gets."""
        cluster, places = self.cluster, []
        for place in gang.places:
            row = cluster.rows[place.node]
            devices = cluster.add_pods(row, place.needs, 1, gang.gang.id, place.devices)
            places.append(replace(place, devices=devices[0] if devices else ()))
        cluster.set_exclusive_domains(gang.gang.id, gang.constraints)
        gang = replace(gang, places=tuple(places), charge=())
        gang = replace(gang, charge=self.charge_of(gang))
        self._charge(gang, 1)
        return gang

    def charge_of(self, gang: RunningGang) -> Amounts:
        """Return what the listed pods of a gang charge, on the GPUs of their nodes."""
        pods = ((place.node, place.needs) for place in gang.places)
        return gang.charge or charge_on_nodes(self.cluster, self._types, pods)

    def snapshot(self) -> Snapshot:
        """Return the snapshot with this cluster, usage and users; its gangs are those of before."""
        rules = replace(self._snapshot.rules, users=self.users)
        return replace(self._snapshot, cluster=self.cluster, usage=self.usage, rules=rules)

    def copied(self) -> Snapshot:
        """Return the snapshot with copies: this what-if may go on."""
        now = self.snapshot()
        users = {account: dict(held) for account, held in self.users.items()}
        rules = replace(now.rules, users=users)
        return replace(now, cluster=self.cluster.copy(), usage=self.usage.copy(), rules=rules)

    def _charge(self, gang: RunningGang, times: int) -> None:
        charge, declared = self.charge_of(gang), gang.gang
        self.usage.charge(declared.queue, charge, times, firm=not declared.preemptible)
        held = self.users.setdefault(declared.account, {})
        for key, quantity in charge:
            held[key] = held.get(key, 0) + times * quantity


def without_gangs(snapshot: Snapshot, gone: Collection[GangId]) -> Snapshot:
    """Return the snapshot as it would be when some gangs have ended."""
    what_if = WhatIf(snapshot)
    for gang in snapshot.occupants:
        if gang.gang.id in gone:
            what_if.release(gang)
    return _without_gangs(what_if.snapshot(), gone)


def left_free(snapshot: Snapshot, gone: Collection[GangId]) -> Snapshot:
    """Return the snapshot with the capacity of some gangs free; their queues stay charged."""
    gangs = (gang for gang in snapshot.occupants if gang.gang.id in gone)
    cluster = cluster_without(snapshot.cluster, gangs)
    return _without_gangs(replace(snapshot, cluster=cluster), gone)


def cluster_without(cluster: Cluster, gone: Iterable[RunningGang]) -> Cluster:
    """Return a copy of a cluster without the listed pods of some gangs."""
    cluster = cluster.copy()
    for gang in gone:
        remove_pods(cluster, gang.gang.id, gang.places)
    return cluster


def remove_pods(cluster: Cluster, gang: GangId, places: Iterable[PodPlacement]) -> None:
    """Take pods of a gang off a cluster; with its last pod go its exclusive domains."""
    for place in places:
        row = cluster.rows.get(place.node)
        if row is not None:
            cluster.remove_pods(row, place.needs, 1, gang, (place.devices,))
    if gang in cluster.exclusive_domains and not any(
        gang in held for held in cluster.gangs_by_row.values()
    ):
        del cluster.exclusive_domains[gang]


def places_of(pending: PendingGang, placed: Placement) -> tuple[PodPlacement, ...]:
    """Return where a placement puts the pods of a pending gang."""
    members = {member.name: member for member in pending.members}
    devices = dict(placed.devices)
    return tuple(
        PodPlacement(name, members[name].role, node, members[name].needs, devices.get(name, ()))
        for name, node in placed.nodes
    )


def _without_gangs(snapshot: Snapshot, gone: Collection[GangId]) -> Snapshot:
    running, coming = (
        tuple(gang for gang in gangs if gang.gang.id not in gone)
        for gangs in (snapshot.running, snapshot.starting)
    )
    return replace(snapshot, running=running, starting=coming)
