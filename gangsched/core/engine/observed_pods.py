"""The pods of gangs as they are observed: what runs is charged, whatever anybody says of it."""

from dataclasses import replace

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.cluster.gpu_sharing import Devices
from gangsched.core.engine.gangs.gang_views import GangState, Limits, MemberState, Stage, State
from gangsched.core.engine.gangs.pod_templates import excess
from gangsched.core.engine.lifecycle.lifecycle import Machine
from gangsched.core.model.ids import GangId, NodeName, PodUid


class Pods(Machine):
    """Folds what happens to pods into gangs and books; the engine sets the attributes."""

    limits: Limits
    _births: int

    def _pod_seen(self, fact: f.PodSeen, now_s: float) -> None:
        known = self._pods.get(fact.uid)
        if known is not None and known.ended and not fact.ended:
            return
        fact = self.as_known(fact)
        if known is not None and known.gang != fact.gang:
            self._pod_gone(fact.uid, now_s)  # it waits elsewhere from now on
        self._pods[fact.uid] = fact
        if fact.gang is not None:
            self._take_place(self._gang(fact.gang), fact)
        devices: Devices = ()
        if fact.node is not None and not fact.ended:
            devices = self._arrive(fact, fact.node)
        elif self._discharge(fact.uid):
            self._backlog.room_grew = True
        if fact.gang is None:
            return
        gang = self._gang(fact.gang)
        held = gang.holds()
        changed = gang.pod_seen(fact)
        if not held and gang.holds():  # it was bound by others, or before this process began
            self._met(gang)
        member = gang.members[fact.name]
        if member.pod == fact.uid and fact.terminating and member.runs and not member.evicted:
            member.evicted = True  # by an earlier process, or by anybody: its room comes free
            self._leavers[gang.id] = None
            self._changes[gang.id] = None
        if member.pod == fact.uid and member.bound:
            member.devices = devices
            if member.stage is not None:
                self._settle_member(gang, member)
                changed = True
        if not changed or self._outgrown(gang, member, now_s):
            return
        waits = gang.held_back or member.stage is not Stage.RESERVED
        if gang.state in (State.RESERVED, State.BINDING) and not waits:
            self._prepare(gang, member)  # the others have not moved: no need to look at them
        elif gang.state is not State.BINDING or gang.under_way() == 0:
            self._refresh(gang, now_s)

    def _take_place(self, gang: GangState, fact: f.PodSeen) -> None:
        """Let a new pod fill a place that was kept for one of its role, with the room it has."""
        before = gang.place_taken(fact)
        if before is not None and gang.members[fact.name].stage is not None:
            self.ledger.rename((gang.id, before), (gang.id, fact.name))
            self.cluster.rename((gang.id, before), (gang.id, fact.name))
            self._coming.pop(gang.id, None)  # it has the place's name

    def as_known(self, fact: f.PodSeen) -> f.PodSeen:
        """Return what is believed of a pod: what is bound stays so, and in the gang it is in.

        Labels may change at any time; what a bound pod takes, and who is charged for it, does not.
        """
        known, found = self._pods.get(fact.uid), self._member(fact.uid)
        binding = found is not None and found[1].stage is Stage.BINDING
        if known is None or (known.node is None and not binding):
            return fact
        stays = fact.node or known.node, known.gang, known.role  # no late echo takes a binding back
        if stays == (fact.node, fact.gang, fact.role):
            return fact
        return replace(fact, node=stays[0], gang=stays[1], role=stays[2])

    def _met(self, gang: GangState) -> None:
        """Charge a gang that runs, and was not admitted by this process, where it may be."""
        if gang.asked is None:
            self._strays[gang.id] = None
        else:
            gang.spec = None
            self._believe(gang)

    def _arrive(self, fact: f.PodSeen, node: NodeName) -> Devices:
        """Charge a bound pod, in place of what was reserved for it; return the GPUs it shares."""
        gang = self.gangs.get(fact.gang) if fact.gang is not None else None
        member = gang.members.get(fact.name) if gang is not None else None
        devices = fact.devices
        if gang is not None and member is not None and not fact.terminating:
            expected = member.stage is not None and member.node == node
            if expected and member.pod in (None, fact.uid):
                devices = member.devices
                self._hand_over((gang.id, fact.name), fact.uid, node, fact.needs)
        return self._charge(fact.uid, node, fact.needs, fact.gang, devices)

    def _outgrown(self, gang: GangState, member: MemberState, now_s: float) -> bool:
        """Take a place back whose pod asks for more than was planned for it; tell whether it does.

        It was admitted, and placed, as what it was planned for. Before there is a pod, its role
        speaks for it.
        """
        staged = member.stage is not None and member.stage is not Stage.BINDING
        asked = member.asks or member.template
        if not staged or asked is None or member.node is None:
            return False
        row = self.cluster.rows.get(member.node)
        node = self.cluster.nodes[row] if row is not None else None
        why = excess(member.needs, asked, node, judged=self.beyond_is_judged)
        if not why:
            return False
        reason = f"pod {member.name} {why}" if member.asks else f"role {member.role} {why}"
        gang.outgrown(member)
        if gang.state is State.PLACED:
            self._withdraw(gang, member, reason)
            gang.bump()
            self._report(gang, "Outgrown", f"{reason}. It is planned again.")
        else:
            self._break(gang, reason, now_s)
        self._refresh(gang, now_s)
        return True

    def _pod_gone(self, uid: PodUid, now_s: float) -> None:
        known = self._pods.pop(uid, None)
        if known is None:
            return
        if self._discharge(uid):
            self._backlog.room_grew = True
        if known.gang is None:
            return
        gang = self.gangs.get(known.gang)
        member = None if gang is None else gang.members.get(known.name)
        if gang is None or member is None or member.pod != uid:
            return
        lost_reserved = member.stage is not None
        if lost_reserved:
            self._settle_member(gang, member)
            self._backlog.room_grew = True
        gang.pod_gone(member)
        if gang.id in self._leavers and gang.leaving() is None:
            del self._leavers[gang.id]
        if lost_reserved and gang.state in (State.RESERVED, State.BINDING):
            self._break(gang, f"pod {known.name} left before the gang had started", now_s)
        self._refresh(gang, now_s)
        if gang.vanished():
            self._forget(gang)

    def _prepared(self, uid: PodUid, node: NodeName, now_s: float) -> None:
        found = self._member(uid)
        if found is None:
            return
        gang, member = found
        if member.node != node or member.stage is not Stage.PREPARING:
            if member.stage is not Stage.PREPARED and member.stage is not Stage.BINDING:
                self._orders.append(
                    o.RejectPod(gang.id, uid, member.name, f"{node} is not reserved for this pod")
                )
            return
        gang.move(member, Stage.PREPARED)
        if gang.before_barrier() == 0 or gang.state is State.PLACED:
            self._advance(gang, now_s)

    def _refused(self, fact: f.PrepareFailed | f.BindFailed, now_s: float) -> None:
        """Settle a member that was refused for good: it is not bound and will not be."""
        node = fact.node
        found = self._member(fact.uid)
        if found is None:
            return
        gang, member = found
        if member.stage is None or member.node != node or member.bound:
            return
        fits = fact.fits if isinstance(fact, f.PrepareFailed) else None
        if fits is None:  # perhaps the members repel each other (pod anti-affinity)
            fits = sum(1 for m in gang.members.values() if node in (m.node, m.bound)) - 1
        self._settle_member(gang, member)
        self._backlog.room_grew = True
        self._avoid(gang, node, fits, now_s)
        surplus = gang.under_way() + gang.bound_count() >= gang.enough()
        if gang.state is State.PLACED or (surplus and gang.state is State.BINDING):
            gang.bump()
            self._back_off(gang, now_s + self.limits.backoff_s)
        elif gang.state in (State.RESERVED, State.BINDING):
            self._break(gang, f"{node} refused pod {member.name}: {fact.reason}", now_s)
        self._refresh(gang, now_s)

    # -- their gangs --------------------------------------------------------------------------

    def _gang(self, gang_id: GangId) -> GangState:
        gang = self.gangs.get(gang_id)
        if gang is None:
            # A gang that is deleted and declared anew must not meet plans of its predecessor.
            self._births += 1
            gang = self.gangs[gang_id] = GangState(
                gang_id, version=self._births << 32, changes=self._changes
            )
        return gang

    def _forget(self, gang: GangState) -> None:
        for member in gang.members.values():
            self._discharge((gang.id, member.name))
        del self.gangs[gang.id]
        self.cluster.exclusive.pop(gang.id, None)
        self._doubted.pop(gang.id, None)
        self._strays.pop(gang.id, None)
        self._holding.drop(gang)
        self._backlog.forget(gang.id)
        self._timers.forget(gang.id)
        self._leavers.pop(gang.id, None)
        self._waiting_known.pop(gang.id, None)
        self._changes[gang.id] = None
