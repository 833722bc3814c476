"""The tree of queues: what is wrong with it, and how much each queue may use.

The arithmetic of guarantees and borrowing is Kueue's (KEP-79): a queue keeps for itself what it
does not lend, the rest of its guarantee lies in its parent's pool, and its use beyond what it kept
is counted there. Other than in Kueue, a parent's nominal quota is that of its whole subtree, so
that an administrator can read the guarantee of a department off one line. That number holds
whatever is written below: where the children add up to more, the largest of them count for less.
"""

from collections.abc import Iterable, Iterator, Mapping

from gangsched.core.model.pods import GPU, MILLI
from gangsched.core.model.queues import DEFAULT_QUEUE, Queue, Quota, QuotaKey, Stop, label

UNLIMITED = 1 << 62
DEPTH_MAX = 16
SYSTEM_NAMESPACE = "kube-system"
PRIORITY_OF_USERS = 1_000_000_000
"""The API server rejects a PriorityClass of more: those beyond are its own system-* classes."""

PRIORITY_MAX = 2**31 - 1

AncestorPaths = tuple[tuple[str, ...], tuple[str, ...]]
"""Two ways up a tree, nearest first."""

_ANCESTOR_PATHS_MAX = 100_000


class QueueTree:
    """Queues by name; immutable.

    `problems` says of queues that cannot be used what is wrong with them, `lowered` which quotas
    count for less than is written, and `notes` what to report of queues that can be used.
    No gang may run any longer in those that are `drained`.
    """

    def __init__(self, queues: Iterable[Queue] = ()) -> None:
        self.queues: dict[str, Queue] = {queue.name: queue for queue in queues}
        self.queues.setdefault(DEFAULT_QUEUE, Queue(DEFAULT_QUEUE))
        self.problems: dict[str, str] = {}
        self.lowered: dict[str, dict[QuotaKey, str]] = {}
        self.notes: dict[str, list[str]] = {}
        self.children: dict[str, list[str]] = {}
        self._paths: dict[str, tuple[str, ...]] = {}
        for name in self.queues:
            path = self._path_to_root(name)
            if path is not None:
                self._paths[name] = path
        for name in sorted(self._paths):
            self.children.setdefault(self.queues[name].parent, []).append(name)
        self._nominal: dict[str, dict[QuotaKey, int]] = {}
        self._subtree_quota: dict[str, dict[QuotaKey, int]] = {}
        self._guaranteed_quota: dict[str, dict[QuotaKey, int]] = {}
        self._declared: dict[str, dict[QuotaKey, Quota]] = {}
        upwards = sorted(self._paths, key=lambda name: (-len(self._paths[name]), name))
        for name in upwards:
            self._sum_children(name)
        for name in reversed(upwards):
            self._cap_children(name)
        for name in upwards:
            self._compute_guarantee(name)
        self._guaranteed = frozenset(
            key for has in self._nominal.values() for key, quantity in has.items() if quantity
        )
        stops = ((name, queue.stop) for name, queue in self.queues.items())
        self.drained = frozenset(name for name, stop in stops if stop is Stop.DRAIN)
        self._quota_keys: dict[str, tuple[QuotaKey, ...]] = {}
        self._kinds: dict[str, tuple[str, ...]] = {}
        self._ancestor_paths: dict[tuple[str, str], AncestorPaths] = {}

    def _path_to_root(self, name: str) -> tuple[str, ...] | None:
        """Return the queue and its ancestors up to the root, or note why there is no such way."""
        path = [name]
        if self.queues[name].broken:
            self.problems[name] = self.queues[name].broken
            return None
        while (parent := self.queues[path[-1]].parent) != "":
            if parent in path:
                circle = " > ".join([*path[path.index(parent) :], parent])
                self.problems[name] = f"spec.parent: the parents are a circle: {circle}"
                return None
            if parent not in self.queues:
                self.problems[name] = (
                    f"spec.parent: {parent!r}, parent of {path[-1]!r}, does not exist"
                )
                return None
            if self.queues[parent].broken:
                self.problems[name] = (
                    f"spec.parent: {parent!r}, parent of {path[-1]!r}, cannot be used itself"
                )
                return None
            path.append(parent)
            if len(path) > DEPTH_MAX:
                self.problems[name] = f"spec.parent: more than {DEPTH_MAX} queues above each other"
                return None
        return tuple(path)

    def _sum_children(self, name: str) -> None:
        """Learn what a queue asks for: what is written, or else what its children ask for."""
        declared = self._declared[name] = {quota.key: quota for quota in self.queues[name].quotas}
        nominal = self._nominal[name] = {}
        for child in self.children.get(name, ()):
            for key, quantity in self._nominal[child].items():
                nominal[key] = nominal.get(key, 0) + quantity
        for key, quota in declared.items():
            if nominal.get(key, 0) > quota.nominal:
                self.notes.setdefault(name, []).append(
                    f"spec.quotas[{label(key)}].nominal: the queues below it add up to "
                    f"{number(key, nominal[key])}, more than its {number(key, quota.nominal)}; "
                    f"the largest of them count for less than is written"
                )
            if quota.lending is not None and quota.lending > quota.nominal:
                self.notes.setdefault(name, []).append(
                    f"spec.quotas[{label(key)}].lendingLimit: {number(key, quota.lending)} is more "
                    f"than its nominal {number(key, quota.nominal)}; all of that is lent"
                )
            nominal[key] = quota.nominal

    def _cap_children(self, name: str) -> None:
        """Have the children of a queue count for no more than it has."""
        for key, has in self._nominal[name].items():
            asked = {
                child: self._nominal[child][key]
                for child in self.children.get(name, ())
                if key in self._nominal[child]
            }
            if sum(asked.values()) <= has:
                continue
            for child, gets in _share_out(asked, has).items():
                if gets < asked[child]:
                    self._nominal[child][key] = gets
                    if key in self._declared[child]:
                        self._note_lowered(child, key)

    def _note_lowered(self, name: str, key: QuotaKey) -> None:
        """Note that a quota counts for less than is written, and because of which queue."""
        above = next(one for one in self._paths[name][1:] if key in self._declared[one])
        self.lowered.setdefault(name, {})[key] = (
            f"spec.quotas[{label(key)}].nominal: {number(key, self._declared[name][key].nominal)} "
            f"counts as {number(key, self._nominal[name][key])}, because queue {above}, above it, "
            f"has {number(key, self._nominal[above][key])} for all below it"
        )

    def _compute_guarantee(self, name: str) -> None:
        """Work out what a queue lends, after those below it."""
        # What children keep for themselves never comes into this queue's pool.
        pool = self._subtree_quota[name] = {
            key: quantity
            - sum(self.guaranteed_quota(child, key) for child in self.children.get(name, ()))
            for key, quantity in self._nominal[name].items()
        }
        self._guaranteed_quota[name] = {
            key: max(pool[key] - quota.lending, 0)
            for key, quota in self._declared[name].items()
            if quota.lending is not None
        }

    # -- questions ----------------------------------------------------------------------------

    def __contains__(self, name: str) -> bool:
        return name in self._paths

    def path(self, name: str) -> tuple[str, ...]:
        """Return the queue and its ancestors, nearest first."""
        return self._paths[name]

    def charged_queue(self, name: str) -> str:
        """Return the queue that is charged for one of this name: itself, or else the default."""
        return name if name in self._paths else DEFAULT_QUEUE

    def admits(self, name: str, namespace: str) -> bool:
        """Return whether gangs of a namespace may use a queue; those above it have to agree."""
        path = self._paths.get(name, (name,))
        return all(self.queues[one].admits(namespace) for one in path)

    def open_to(self, namespace: str) -> Iterator[str]:
        """Yield the queues that gangs of a namespace may use, by name."""
        return (name for name in sorted(self._paths) if self.admits(name, namespace))

    def priority_max(self, name: str, namespace: str) -> tuple[int, str]:
        """Return the highest priority that gangs of a namespace may have, and which queue sets it.

        Where no queue does, what is beyond users' own classes is for Kubernetes' own namespace.
        """
        limits = [
            (most, queue)
            for queue in self._paths.get(name, ())
            if (most := self.queues[queue].highest_priority) is not None
        ]
        usual = PRIORITY_MAX if namespace == SYSTEM_NAMESPACE else PRIORITY_OF_USERS
        return min(limits, default=(usual, ""))

    def exclusive(self, name: str) -> str:
        """Return the coarsest level of which gangs of a queue may have a domain for themselves.

        The queue declares it, or else the nearest above it that does; "" where none does.
        """
        levels = (self.queues[queue].exclusive for queue in self._paths[name])
        return next((level for level in levels if level), "")

    def firm_loans(self, name: str) -> bool:
        """Return whether gangs of a queue that may not be preempted may borrow."""
        return any(self.queues[queue].firm_loans for queue in self._paths[name])

    def guaranteed(self) -> frozenset[QuotaKey]:
        """Return the resources of which any queue is guaranteed something."""
        return self._guaranteed

    def nominal(self, name: str, key: QuotaKey) -> int | None:
        """Return what a queue is guaranteed, or None where no queue above it has such a quota.

        That is less than what is written where queues above it have less.
        """
        own = self._nominal[name].get(key)
        if own is not None:
            return own
        return 0 if key in self.quota_keys(name) else None

    def notices(self, name: str) -> list[str]:
        """Return what to report of a queue that can be used, a sentence each."""
        return [*self.lowered.get(name, {}).values(), *self.notes.get(name, ())]

    def nominal_quotas(self, name: str) -> Mapping[QuotaKey, int]:
        """Return every guarantee of a queue's subtree."""
        return self._nominal[name]

    def quota(self, name: str, key: QuotaKey) -> Quota | None:
        """Return what the queue itself declares for a resource."""
        return self._declared[name].get(key)

    def subtree_quota(self, name: str, key: QuotaKey) -> int:
        """Return the part of a guarantee that children do not keep for themselves."""
        return self._subtree_quota[name].get(key, 0)

    def guaranteed_quota(self, name: str, key: QuotaKey) -> int:
        """Return the part of a guarantee that other queues cannot borrow."""
        return self._guaranteed_quota[name].get(key, 0)

    def guaranteed_quotas(self, name: str) -> Mapping[QuotaKey, int]:
        """Return every part of a guarantee that other queues cannot borrow."""
        return self._guaranteed_quota[name]

    def quota_keys(self, name: str) -> tuple[QuotaKey, ...]:
        """Return the resources for which this queue or one above it has a quota."""
        known = self._quota_keys.get(name)
        if known is None:
            keys = {key for one in self._paths[name] for key in self._nominal[one]}
            known = self._quota_keys[name] = tuple(sorted(keys))
        return known

    def subtree(self, name: str) -> list[str]:
        """Return a queue and all that are below it."""
        found = [name]
        for one in found:
            found += self.children.get(one, ())
        return found

    def gpu_types(self, name: str) -> tuple[str, ...]:
        """Return the GPU kinds that have quotas of their own for this queue."""
        known = self._kinds.get(name)
        if known is None:
            known = self._kinds[name] = tuple(kind for _, kind in self.quota_keys(name) if kind)
        return known

    def paths_below_common_ancestor(self, ours: str, theirs: str) -> AncestorPaths:
        """Return the two ways up to, and without, the nearest common ancestor."""
        known = self._ancestor_paths.get((ours, theirs))
        if known is None:
            mine, other = self._paths[ours], self._paths[theirs]
            common = next((name for name in mine if name in other), None)
            known = mine, other
            if common is not None:
                known = mine[: mine.index(common)], other[: other.index(common)]
            if len(self._ancestor_paths) >= _ANCESTOR_PATHS_MAX:
                self._ancestor_paths.clear()
            self._ancestor_paths[(ours, theirs)] = known
        return known

    def leaves(self) -> Iterator[str]:
        """Yield the queues without children, in name order."""
        return (name for name in sorted(self._paths) if name not in self.children)

    def top_down(self) -> list[str]:
        """Return all queues, each after its parent; those that cannot be used come last."""
        found: list[str] = []

        def down(name: str) -> None:
            for child in sorted(self.children.get(name, ())):
                found.append(child)
                down(child)

        down("")
        return found + sorted(name for name in self.queues if name not in self)


def _share_out(asked: Mapping[str, int], has: int) -> dict[str, int]:
    """Share out what there is: what is too much comes off the largest, and the others get all."""
    found: dict[str, int] = {}
    for name in sorted(asked, key=lambda name: (asked[name], name)):
        found[name] = min(asked[name], has // (len(asked) - len(found)))
        has -= found[name]
    return found


def number(key: QuotaKey, quantity: int) -> str:
    """Write a quantity of a quota without its resource."""
    resource, _ = key
    if resource in (GPU, "cpu"):
        return f"{quantity / MILLI:g}"
    if resource in ("memory", "ephemeral-storage"):
        return f"{quantity / 2**30:.3g} GiB"
    return str(quantity)


def shown(key: QuotaKey, quantity: int) -> str:
    """Write a quantity of a quota as its user would."""
    return f"{number(key, quantity)} {label(key)}"
