"""The usage of every queue, from the same charges that fill the nodes.

Each charge to a node that belongs to a gang is counted here under the same key, and is released
under it. So usage cannot leak unless the capacity of a node leaks with it. `audit` compares the
charges with what really runs, and corrects differences.

GPU time is integrated lazily. An account has its rate and the time of its last update, so that
decayed usage (half-life) and budgets cost nothing while nothing changes.
"""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, replace

from gangsched.core.bounds import USERS_OF_QUEUE
from gangsched.core.model.ids import GangId
from gangsched.core.model.pods import GPU, MILLI
from gangsched.core.model.queues import (
    Amounts,
    GpuBudget,
    GpuTypes,
    GpuWeights,
    QuotaKey,
    gpu_types_of,
)
from gangsched.core.quota.gpu_time import GpuTime
from gangsched.core.quota.queue_tree import QueueTree
from gangsched.core.quota.usage import Usage

Account = tuple[str, str]
"""Queue and user; the user is "" for the queue as a whole. Unknown users are "(unknown)"."""

_NOTHING = 1e-9


@dataclass(frozen=True, slots=True)
class Allocation:
    """The charge of one key; `model` is the GPU product of the node, if known.

    A `firm` charge belongs to a gang with `preemptible: false`.
    """

    gang: GangId
    queue: str
    user: str
    amounts: Amounts
    model: str = ""
    firm: bool = False


class Ledger:
    """Usage by queue, by user and over time."""

    def __init__(self, rates: GpuWeights | None = None, half_life_s: float = 7 * 86_400.0) -> None:
        self.gpu_weights = rates or GpuWeights()
        self.half_life_s = half_life_s
        self.usage = Usage(QueueTree())
        self.users: dict[Account, dict[QuotaKey, int]] = {}
        """The charges of users; a user without any has no entry."""

        self.accounts: dict[Account, GpuTime] = {}
        self._allocations: dict[Hashable, Allocation] = {}
        self._keys_of_gang: dict[GangId, dict[Hashable, None]] = {}
        self.gpu_types = GpuTypes()
        self._accounts_after_cleanup = 0

    # -- changes ----------------------------------------------------------------------

    def set_tree(self, tree: QueueTree, now_s: float) -> None:
        """Set a new tree, and count every charge in it again."""
        for time in self.accounts.values():
            time.advance_to(now_s, self.half_life_s)
            time.rate = 0.0
        self.gpu_types = gpu_types_of(tree.queues.values(), self.gpu_weights)
        self.usage = Usage(tree, self.usage.capacity)
        self.users = {}
        for holding in self._allocations.values():
            self._count(holding, 1, now_s)
        for account, time in self.accounts.items():
            self._open_periods(account, time)

    def charge(self, key: Hashable, holding: Allocation, now_s: float) -> None:
        """Count a charge in place of the previous charge of its key."""
        if self._allocations.get(key) == holding:
            return
        self.discharge(key, now_s)
        self._allocations[key] = holding
        self._keys_of_gang.setdefault(holding.gang, {})[key] = None
        self._count(holding, 1, now_s)

    def discharge(self, key: Hashable, now_s: float) -> None:
        """Release the charge of a key."""
        holding = self._allocations.pop(key, None)
        if holding is None:
            return
        keys = self._keys_of_gang[holding.gang]
        del keys[key]
        if not keys:
            del self._keys_of_gang[holding.gang]
        self._count(holding, -1, now_s)

    def rekey(self, key: Hashable, other: Hashable) -> None:
        """Transfer the charge of a key to another key, which has none."""
        holding = self._allocations[other] = self._allocations.pop(key)
        keys = self._keys_of_gang[holding.gang]
        del keys[key]
        keys[other] = None

    def move(self, gang: GangId, account: Account, now_s: float, *, firm: bool = False) -> None:
        """Count the charges of a gang for another queue and user from now on, or as firm."""
        queue, user = account
        for key in list(self._keys_of_gang.get(gang, ())):
            held = replace(self._allocations[key], queue=queue, user=user, firm=firm)
            self.charge(key, held, now_s)

    def _count(self, holding: Allocation, sign: int, now_s: float) -> None:
        amounts = self.gpu_types.with_gpu_types(holding.amounts, holding.model)
        self.usage.charge(holding.queue, amounts, sign, firm=holding.firm)
        account = (self.usage.tree.charged_queue(holding.queue), holding.user)
        held = self.users.setdefault(account, {})
        for key, quantity in amounts:
            held[key] = held.get(key, 0) + sign * quantity
        if sign < 0 and not any(held.values()):
            del self.users[account]
        self._change_rate(holding, sign, now_s)

    def _change_rate(self, holding: Allocation, sign: int, now_s: float) -> None:
        gpus = dict(holding.amounts).get((GPU, ""), 0) / MILLI
        if not gpus:
            return
        change = sign * gpus * self.gpu_weights.of(holding.model)
        tree = self.usage.tree
        home = tree.charged_queue(holding.queue)  # a gang may name a queue that does not exist
        accounts: list[Account] = [(name, "") for name in tree.path(home)]
        accounts.append((home, holding.user))
        for account in accounts:
            time = self.account(account)
            time.advance_to(now_s, self.half_life_s)
            time.rate = rate if (rate := time.rate + change) > _NOTHING else 0.0

    def account(self, account: Account) -> GpuTime:
        """Return an account; it is created if it does not exist."""
        gpu_time = self.accounts.get(account)
        if gpu_time is None:
            if len(self.accounts) > 2 * self._accounts_after_cleanup + USERS_OF_QUEUE.most:
                self._forget_users()
            gpu_time = self.accounts[account] = GpuTime()
            self._open_periods(account, gpu_time)
        return gpu_time

    def _forget_users(self) -> None:
        """Remove users without charges that spent least, if a queue has too many users."""
        now_s = max(time.at_s for time in self.accounts.values())
        idle: dict[str, list[str]] = {}
        for (queue, user), time in self.accounts.items():
            if user and not time.rate:
                idle.setdefault(queue, []).append(user)
        for queue, users in idle.items():
            for user in self.sorted_by_usage(queue, users, now_s)[USERS_OF_QUEUE.most :]:
                del self.accounts[queue, user]
        self._accounts_after_cleanup = len(self.accounts)

    def sorted_by_usage(self, queue: str, users: Iterable[str], now_s: float) -> list[str]:
        """Return users by their GPU time in the present periods, then before, the highest first."""

        def key(user: str) -> tuple[float, float, str]:
            time = self.accounts[queue, user]
            time.advance_to(now_s, self.half_life_s)
            present = max((spent for _, spent in time.periods.values()), default=0.0)
            return -present, -time.historical_gpu_s, user

        return sorted(users, key=key)

    def _open_periods(self, account: Account, time: GpuTime) -> None:
        queue = self.usage.tree.queues.get(account[0])
        for budget in queue.budgets if queue is not None else ():
            if budget.per_user == bool(account[1]):
                now = int(time.at_s // budget.period_s)
                time.periods.setdefault(budget.period_s, (now, 0.0))

    # -- questions ----------------------------------------------------------------------------

    def historical_gpu_s(self, now_s: float) -> dict[str, float]:
        """Return the decayed GPU-seconds of every queue."""
        by_queue = {}
        for queue in self.usage.tree.queues:
            time = self.accounts.get((queue, ""))
            if time is not None:
                time.advance_to(now_s, self.half_life_s)
                by_queue[queue] = time.historical_gpu_s
        return by_queue

    def gpu_seconds_total(self, now_s: float) -> dict[str, float]:
        """Return the GPU-seconds that each queue spent since this process started."""
        by_queue = {}
        for (queue, user), time in self.accounts.items():
            if not user:
                time.advance_to(now_s, self.half_life_s)
                by_queue[queue] = time.total
        return by_queue

    def budget_usage(self, account: Account, budget: GpuBudget, now_s: float) -> float:
        """Return the GPU-seconds of a budget's present period that are spent."""
        time = self.accounts.get(account)
        if time is None:
            return 0.0
        time.advance_to(now_s, self.half_life_s)
        number, spent = time.periods.get(budget.period_s, (-1, 0.0))
        return spent if number == int(now_s // budget.period_s) else 0.0

    def allocation(self, key: Hashable) -> Allocation | None:
        """Return the charge of a key, or None."""
        return self._allocations.get(key)

    def usage_of_gang(self, gang: GangId) -> dict[QuotaKey, int]:
        """Return the charge of a gang by resource."""
        usage: dict[QuotaKey, int] = {}
        for key in self._keys_of_gang.get(gang, ()):
            for resource, quantity in self._allocations[key].amounts:
                usage[resource] = usage.get(resource, 0) + quantity
        return usage

    def charge_of(self, gang: GangId) -> Amounts:
        """Return the charge of a gang, with its GPUs counted by type."""
        charge: dict[QuotaKey, int] = {}
        for key in self._keys_of_gang.get(gang, ()):
            held = self._allocations[key]
            for resource, quantity in self.gpu_types.with_gpu_types(held.amounts, held.model):
                charge[resource] = charge.get(resource, 0) + quantity
        return tuple(sorted(charge.items()))

    def audit(self, truth: Mapping[Hashable, Allocation], now_s: float) -> dict[str, int]:
        """Correct every difference from what really runs; return their number by queue.

        The usage is counted again as well, because a wrong sum is a leak too.
        """
        wrong: dict[str, int] = {}
        for key in [key for key, holding in self._allocations.items() if truth.get(key) != holding]:
            queue = self._allocations[key].queue
            wrong[queue] = wrong.get(queue, 0) + 1
            self.discharge(key, now_s)
        for key, holding in truth.items():
            if key not in self._allocations:
                wrong[holding.queue] = wrong.get(holding.queue, 0) + 1
                self.charge(key, holding, now_s)
        counted = self.usage.subtree_usage
        self.set_tree(self.usage.tree, now_s)
        for queue in {*counted, *self.usage.subtree_usage}:
            before = {key: n for key, n in counted.get(queue, {}).items() if n}
            after = {key: n for key, n in self.usage.subtree_usage.get(queue, {}).items() if n}
            if before != after:
                wrong.setdefault(queue, 1)
        return wrong
