"""The rules of queues for pending gangs."""

from collections.abc import Iterable

from gangsched.core.engine.admission.preemption_history import PreemptionHistory
from gangsched.core.engine.allocation.allocations import Allocations
from gangsched.core.engine.allocation.declarations import Declarations
from gangsched.core.engine.gangs.gang_table import GangTable
from gangsched.core.engine.views.running_set import RunningSet
from gangsched.core.model.gangs import PendingGang
from gangsched.core.planning.namespace_quotas import add_to, total_requests
from gangsched.core.snapshot import QueueRules


class QueueRulesReader:
    """Reads the rules by which pending gangs are admitted; it owns nothing."""

    def __init__(
        self,
        table: GangTable,
        declarations: Declarations,
        allocations: Allocations,
        running: RunningSet,
        preemptions: PreemptionHistory,
    ) -> None:
        self._table = table
        self._declarations = declarations
        self._allocations = allocations
        self._running = running
        self._preemptions = preemptions

    def rules(self, waiting: Iterable[PendingGang], now_s: float) -> QueueRules:
        """Return the rules for pending gangs; those of one equivalence class have one user."""
        declared, ledger = self._declarations, self._allocations.ledger
        tree = ledger.usage.tree
        spent: dict[tuple[str, str, float], float] = {}
        for queue in tree.queues.values():
            for budget in queue.budgets:
                users = {gang.gang.account for gang in waiting if gang.gang.queue == queue.name}
                for account in users if budget.per_user else ((queue.name, ""),):
                    spent[(*account, budget.period_s)] = ledger.budget_usage(account, budget, now_s)
        limited = {name for name, queue in tree.queues.items() if queue.user_limits}
        return QueueRules(
            users={key: dict(held) for key, held in ledger.users.items() if key[0] in limited}
            if limited
            else {},
            spent=spent,
            advance_reservations=tuple(
                declared.bookings[name] for name in sorted(declared.bookings)
            ),
            recent_preemptions=self._preemptions.recent(now_s),
            gpu_types=ledger.gpu_types,
            namespaces={name: dict(quotas) for name, quotas in declared.namespaces.items()},
            uncreated=self._unborn(),
            protected=declared.protected,
        )

    def _unborn(self) -> dict[str, dict[str, int]]:
        """Return the requests of reserved pods that do not exist, in namespaces with quotas."""
        requests: dict[str, dict[str, int]] = {}
        namespaces = self._declarations.namespaces
        for gang in self._running.starting() if namespaces else ():
            namespace = gang.gang.id.partition("/")[0]
            state = self._table.gangs.get(gang.gang.id)
            if state is not None and namespaces.get(namespace):
                needs = (m.needs for m in state.members.values() if m.stage and m.pod is None)
                add_to(requests.setdefault(namespace, {}), total_requests(needs))
        return requests
