"""Admits changes to the declaration of a gang while it holds nodes.

A gang without nodes is planned as it is declared, and planning admits it. Once it holds nodes, some
changes need admission by the same rules: those of its queue, of `preemptible`, and of its exclusive
domains. Until then, the gang keeps its admitted declaration, and its status says so. Changes that
were not admitted are checked again from time to time.
"""

from dataclasses import replace

from gangsched.core.engine.admission.queue_rules import QueueRulesReader
from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.gang_table import GangTable
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.outbox import Outbox
from gangsched.core.engine.views.pending_views import PendingViews
from gangsched.core.model.constraints import Constraints
from gangsched.core.model.gangs import Gang, PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.queues import DEFAULT_QUEUE
from gangsched.core.model.refusal import Reason, Refusal
from gangsched.core.placement.constraints import barred_rows
from gangsched.core.planning.admission import (
    admission_refusal,
    may_be_exclusive,
    may_not_borrow,
    quota_refusal,
)
from gangsched.core.quota.charges import charge_of
from gangsched.core.snapshot import Snapshot


class AdmittedChanges:
    """Applies the declarations of gangs, as far as they are admitted."""

    def __init__(
        self,
        table: GangTable,
        allocations: Allocations,
        views: PendingViews,
        rules: QueueRulesReader,
        outbox: Outbox,
    ) -> None:
        self._table = table
        self._allocations = allocations
        self._views = views
        self._rules = rules
        self._outbox = outbox
        self._doubts: dict[GangId, str] = {}
        """By gang: a sentence about what of its declaration is not admitted; never empty."""
        self._undeclared: dict[GangId, None] = {}
        """Gangs that hold nodes and had no declaration when these were observed."""

    def take_over(self, gang: GangState) -> bool:
        """Apply the declaration of a gang as far as it is admitted; return whether it changed."""
        asked, allocations = gang.declaration, self._allocations
        if asked is None:
            return False
        doubts: list[str] = []
        before = gang.account, allocations.is_firm(gang.id)
        new = gang.declare(self._admitted(gang, asked, doubts) if gang.holds_nodes() else asked)
        if (gang.account, allocations.is_firm(gang.id)) != before:
            allocations.reassign(gang)
        if gang.holds_nodes():
            self.claim_domains(gang, doubts)
        self._record_doubt(gang, " ".join(doubts))
        return new

    def take_over_running(self, gang: GangState) -> None:
        """Charge a running gang that this process did not admit, to a queue that it may use."""
        if gang.declaration is None:
            self._undeclared[gang.id] = None
        else:
            gang.spec = None
            self.take_over(gang)

    def take_over_placed(self, gang: GangState) -> None:
        """Apply the declaration of a gang that was placed, and report what is not admitted."""
        self._doubts.pop(gang.id, None)
        self.take_over(gang)

    def reconsider(self) -> list[GangState]:
        """Check again what was not admitted; return the gangs that changed."""
        gangs = self._table.gangs
        for gang_id in self._undeclared:
            gang = gangs.get(gang_id)
            if gang is not None and gang.spec is None and gang.holds_nodes():
                # No object declares this running gang: so it is preemptible.
                gang.declaration = Gang(gang_id, 1, queue=gang.account[0], user=gang.account[1])
                gang.undeclare()
        gang_ids = [*self._undeclared, *self._doubts]
        self._undeclared.clear()
        known = [gangs[gang_id] for gang_id in gang_ids if gang_id in gangs]
        return [gang for gang in known if self.take_over(gang)]

    def forget(self, gang: GangId) -> None:
        """Forget a gang."""
        self._doubts.pop(gang, None)
        self._undeclared.pop(gang, None)

    def still_admitted(self, gang: GangState) -> bool:
        """Return whether the queue of a gang without nodes would admit it."""
        waiting, now_s = self._views.view(gang), self._allocations.now_s
        snapshot = self._snapshot(waiting, now_s)
        usage, charge = self._allocations.ledger.usage, charge_of(waiting)
        barrier = admission_refusal(waiting, snapshot, usage, snapshot.rules.users, now_s)
        barrier = barrier or may_not_borrow(waiting, usage, charge)
        return barrier is None and quota_refusal(waiting, usage, charge) is None

    def report_whole(self, gang: GangState) -> None:
        """Report that a running gang is complete again, unless changes of it are not admitted."""
        if gang.id not in self._doubts:
            self._outbox.report_placed(gang, adopted=True)

    # -- charges ----------------------------------------------------------------------

    def _admitted(self, gang: GangState, asked: Gang, doubts: list[str]) -> Gang:
        """Return a declaration with queue, user and `preemptible` as they are admitted."""
        known = gang.spec
        if known is None:
            known = self._admitted_at_first(asked)
        spec = replace(asked, queue=known.queue, preemptible=known.preemptible, user=known.user)
        if spec.queue != asked.queue:
            refusal = self._refused_move(gang, spec, replace(spec, queue=asked.queue))
            if refusal is None:
                spec = replace(spec, queue=asked.queue)
            else:
                home = self._allocations.ledger.usage.tree.charged_queue(spec.queue)
                doubts.append(f"It stays charged to queue {home}: {refusal.message}")
        if spec.preemptible != asked.preemptible:
            firm = replace(spec, preemptible=asked.preemptible)
            refusal = self._borrowing_refusal(gang, spec, firm)
            if refusal is None:
                spec = firm
            else:
                doubts.append(f"The gang stays preemptible. {refusal.message}")
        return spec

    def _admitted_at_first(self, asked: Gang) -> Gang:
        """Return the first admitted declaration of a gang that runs already.

        It is charged to the queue that an earlier process charged, or to a queue that it may use.
        """
        queue, tree = asked.charged or asked.queue, self._allocations.ledger.usage.tree
        namespace = asked.id.split("/", 1)[0]
        if not asked.charged and not (queue in tree and tree.admits(queue, namespace)):
            queue = DEFAULT_QUEUE
        return replace(asked, queue=queue, preemptible=True)

    def _refused_move(self, gang: GangState, known: Gang, asked: Gang) -> Refusal | None:
        """Return why a running gang may not move to another queue, or None."""
        ledger, now_s = self._allocations.ledger, self._allocations.now_s
        charge, constraints = ledger.charge_of(gang.id), gang.constraints()
        waiting = PendingGang(
            asked, 0, (), 0, (), gang.priority(), 0.0, constraints=constraints, charge=charge
        )
        snapshot = self._snapshot(waiting, now_s)
        refusal = admission_refusal(waiting, snapshot, ledger.usage, snapshot.rules.users, now_s)
        if refusal is not None:
            return refusal
        return self._borrowing_refusal(gang, known, asked) or self._quota_refusal(
            gang, known, waiting
        )

    def _quota_refusal(self, gang: GangState, known: Gang, waiting: PendingGang) -> Refusal | None:
        ledger = self._allocations.ledger
        usage, charge = ledger.usage.copy(), ledger.charge_of(gang.id)
        usage.charge(known.queue, charge, -1)
        return quota_refusal(waiting, usage, charge)

    def _borrowing_refusal(self, gang: GangState, known: Gang, asked: Gang) -> Refusal | None:
        """Return why a gang with `preemptible: false` would need borrowed quota, or None."""
        if asked.preemptible:
            return None
        ledger = self._allocations.ledger
        usage, charge = ledger.usage.copy(), ledger.charge_of(gang.id)
        usage.charge(known.queue, charge, -1, firm=not known.preemptible)
        return may_not_borrow(PendingGang(asked, 0, (), 0, (), 0, 0.0), usage, charge)

    def _snapshot(self, waiting: PendingGang, now_s: float) -> Snapshot:
        rules = self._rules.rules((waiting,), now_s)
        return Snapshot(self._allocations.cluster, (), rules=rules)

    # -- exclusive domains ------------------------------------------------------------

    def claim_domains(self, gang: GangState, doubts: list[str]) -> None:
        """Give a gang its domains exclusively, if its queue allows it and they have no others."""
        asked, cluster = gang.constraints(), self._allocations.cluster
        tree = self._allocations.ledger.usage.tree
        level = cluster.level(asked.topology, asked.exclusive) if asked.exclusive else None
        if level is None or cluster.exclusive_domains.get(gang.id) == (asked.topology, level):
            cluster.set_exclusive_domains(gang.id, asked)
            return
        cluster.set_exclusive_domains(gang.id, Constraints())
        others = f"Others are not kept out of its domains of level {asked.exclusive}: "
        queue = tree.charged_queue(gang.account[0])
        if not may_be_exclusive(cluster, tree, queue, asked):
            doubts.append(f"{others}queue {queue} does not allow it (spec.exclusive).")
        elif self._shares_domains(gang, asked.topology, level):
            doubts.append(f"{others}other gangs are in them.")
        else:
            cluster.set_exclusive_domains(gang.id, asked)

    def _shares_domains(self, gang: GangState, topology: str, level: int) -> bool:
        cluster = self._allocations.cluster
        kept = barred_rows(gang.id, cluster, topology, level)
        nodes = {node for _, node in gang.assignments()}
        rows = (cluster.rows.get(node) for node in nodes)
        return any(row is not None and bool(kept[row]) for row in rows)

    def _record_doubt(self, gang: GangState, doubt: str) -> None:
        """Record and report what of a running gang's declaration is not admitted."""
        reported = self._doubts.pop(gang.id, "")
        if doubt:
            self._doubts[gang.id] = doubt
        if gang.state is not State.PLACED or doubt == reported:
            return
        if doubt:
            self._outbox.report(gang, Reason.NOT_ADMITTED, doubt)
        else:
            self._outbox.report_placed(gang, adopted=True)
