"""How much of what a gang says anew is believed while it holds room.

A gang that holds nothing is planned as it is declared, and planning admits it. Once it holds room,
a change that moves what it is charged, or what others are kept from, is admitted first by the same
rules; till then the gang goes on as it was, and is told so. What waits is looked at again now and
then.
"""

from dataclasses import replace

from gangsched.core import orders as o
from gangsched.core.engine.allocations import Custody
from gangsched.core.engine.gangs.gang_views import GangState, State
from gangsched.core.model.constraints import Constraints
from gangsched.core.model.gangs import Gang, PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import DEFAULT_QUEUE
from gangsched.core.model.refusal import Reason, Refusal, plural
from gangsched.core.placement.constraints import kept_from
from gangsched.core.planning.admission import (
    admission_refusal,
    may_have,
    may_not_borrow,
    over_quota,
)
from gangsched.core.quota.charges import charge_of
from gangsched.core.quota.ledger import Ledger
from gangsched.core.snapshot import Snapshot


class Belief(Custody):
    """Declarations of gangs, as far as they are believed."""

    def __init__(self, ledger: Ledger | None) -> None:
        super().__init__(ledger)
        self._doubted: dict[GangId, str] = {}
        self._strays: dict[GangId, None] = {}

    def _believe(self, gang: GangState) -> bool:
        """Take a gang's declaration over as far as it is admitted; tell whether that is news."""
        asked = gang.asked
        if asked is None:
            return False
        doubts: list[str] = []
        before = gang.account, self._firm(gang.id)
        new = gang.declare(self._admitted(gang, asked, doubts) if gang.holds() else asked)
        if (gang.account, self._firm(gang.id)) != before:
            self.ledger.move(gang.id, gang.account, self._now_s, firm=self._firm(gang.id))
        if gang.holds():
            self._claim(gang, doubts)
        self._doubt(gang, " ".join(doubts))
        return new

    def _reconsider(self) -> list[GangState]:
        """Look again at what was not believed; return the gangs about which there is news."""
        for gang_id in self._strays:
            gang = self.gangs.get(gang_id)
            if gang is not None and gang.spec is None and gang.holds():
                # Nobody declares it, and it runs: whoever wants its room back may stop it.
                gang.asked = Gang(gang_id, 1, queue=gang.account[0], user=gang.account[1])
                gang.undeclare()
        found = [*self._strays, *self._doubted]
        self._strays.clear()
        gangs = [self.gangs[gang_id] for gang_id in found if gang_id in self.gangs]
        return [gang for gang in gangs if self._believe(gang)]

    # -- what is charged ----------------------------------------------------------------------

    def _admitted(self, gang: GangState, asked: Gang, doubts: list[str]) -> Gang:
        """Return a declaration with what the gang is charged for as it was, or as is admitted."""
        known = gang.spec
        if known is None:
            known = self._as_found(asked)
        spec = replace(asked, queue=known.queue, preemptible=known.preemptible, user=known.user)
        if spec.queue != asked.queue:
            refusal = self._refused_move(gang, spec, replace(spec, queue=asked.queue))
            if refusal is None:
                spec = replace(spec, queue=asked.queue)
            else:
                home = self.ledger.usage.tree.home(spec.queue)
                doubts.append(f"It stays charged to queue {home}: {refusal.message}")
        if spec.preemptible != asked.preemptible:
            firm = replace(spec, preemptible=asked.preemptible)
            refusal = self._loan(gang, spec, firm)
            if refusal is None:
                spec = firm
            else:
                doubts.append(f"It may be stopped like others: {refusal.message}")
        return spec

    def _as_found(self, asked: Gang) -> Gang:
        """Return what is believed at first of a gang that runs already.

        It is charged to the queue that an earlier process charged, or to one it may use.
        """
        queue, tree = asked.charged or asked.queue, self.ledger.usage.tree
        namespace = asked.id.split("/", 1)[0]
        if not asked.charged and not (queue in tree and tree.admits(queue, namespace)):
            queue = DEFAULT_QUEUE
        return replace(asked, queue=queue, preemptible=True)

    def _refused_move(self, gang: GangState, known: Gang, asked: Gang) -> Refusal | None:
        """Return why what a gang holds may not be charged to another queue, or None."""
        charge, constraints = self.ledger.charge_of(gang.id), gang.constraints()
        waiting = PendingGang(
            asked, 0, (), 0, (), gang.priority(), 0.0, constraints=constraints, charge=charge
        )
        snapshot = Snapshot(self.cluster, (), rules=self._rules((waiting,), self._now_s))
        usage = self.ledger.usage
        refusal = admission_refusal(waiting, snapshot, usage, snapshot.rules.users, self._now_s)
        if refusal is not None:
            return refusal
        return self._loan(gang, known, asked) or self._over_quota(gang, known, waiting)

    def _over_quota(self, gang: GangState, known: Gang, waiting: PendingGang) -> Refusal | None:
        usage, charge = self.ledger.usage.copy(), self.ledger.charge_of(gang.id)
        usage.charge(known.queue, charge, -1)
        return over_quota(waiting, usage, charge)

    def _still_admitted(self, gang: GangState) -> bool:
        """Tell whether a gang that holds nothing yet would be admitted by its queue."""
        waiting = self._waiting(gang)
        snapshot = Snapshot(self.cluster, (), rules=self._rules((waiting,), self._now_s))
        usage, charge = self.ledger.usage, charge_of(waiting)
        barrier = admission_refusal(waiting, snapshot, usage, snapshot.rules.users, self._now_s)
        barrier = barrier or may_not_borrow(waiting, usage, charge)
        return barrier is None and over_quota(waiting, usage, charge) is None

    def _loan(self, gang: GangState, known: Gang, asked: Gang) -> Refusal | None:
        """Return why a gang would hold a loan that cannot be taken back, or None."""
        if asked.preemptible:
            return None
        usage, charge = self.ledger.usage.copy(), self.ledger.charge_of(gang.id)
        usage.charge(known.queue, charge, -1, firm=not known.preemptible)
        return may_not_borrow(PendingGang(asked, 0, (), 0, (), 0, 0.0), usage, charge)

    # -- what others are kept from ------------------------------------------------------------

    def _claim(self, gang: GangState, doubts: list[str]) -> None:
        """Keep others out of a gang's domains if its queue allows that and nobody else is there."""
        asked, cluster, tree = gang.constraints(), self.cluster, self.ledger.usage.tree
        level = cluster.level(asked.topology, asked.exclusive) if asked.exclusive else None
        if level is None or cluster.exclusive.get(gang.id) == (asked.topology, level):
            cluster.claim(gang.id, asked)
            return
        cluster.claim(gang.id, Constraints())
        others = f"Others are not kept out of its domains of level {asked.exclusive}: "
        queue = tree.home(gang.account[0])
        if not may_have(cluster, tree, queue, asked):
            doubts.append(f"{others}queue {queue} does not allow it (spec.exclusive).")
        elif self._shares(gang, asked.topology, level):
            doubts.append(f"{others}other gangs are in them.")
        else:
            cluster.claim(gang.id, asked)

    def _shares(self, gang: GangState, topology: str, level: int) -> bool:
        kept = kept_from(gang.id, self.cluster, topology, level)
        nodes = {node for _, node in gang.assignments()}
        rows = (self.cluster.rows.get(node) for node in nodes)
        return any(row is not None and bool(kept[row]) for row in rows)

    # -- words --------------------------------------------------------------------------------

    def _doubt(self, gang: GangState, said: str) -> None:
        """Tell a gang that runs what of its declaration is not believed; it is looked at again."""
        told = self._doubted.pop(gang.id, "")
        if said:
            self._doubted[gang.id] = said
        if gang.state is not State.PLACED or said == told:
            return
        if said:
            self._report(gang, Reason.NOT_ADMITTED.value, said)
        else:
            self._report_placed(gang, met=True)

    def _report_placed(self, gang: GangState, *, met: bool) -> None:
        nodes = len({m.bound for m in gang.members.values() if m.bound})
        self._report(
            gang,
            "Placed",
            f"all {plural(gang.bound_count(), 'pod')} of the gang are bound, "
            f"to {plural(nodes, 'node')}.",
            met=met,
        )

    def _report_whole(self, gang: GangState) -> None:
        """Tell a gang that runs that it is whole again, where its last word was of less."""
        if gang.id not in self._doubted:
            self._report_placed(gang, met=True)

    def _report(self, gang: GangState, reason: str, message: str, *, met: bool = False) -> None:
        state, queue = gang.state.value, gang.account[0] if gang.holds() else ""
        report = o.Report(gang.id, state, reason, message, None, gang.proof, met, queue)
        self._orders.append(report)
