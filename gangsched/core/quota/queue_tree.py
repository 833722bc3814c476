"""The tree of queues: its problems, and how much each queue may use.

The arithmetic of nominal and borrowed quota is Kueue's (KEP-79). A queue keeps the quota that it
does not lend. The rest of its nominal quota is in the pool of its parent, where its use beyond the
kept quota is counted. Other than in Kueue, the nominal quota of a parent is that of its whole
subtree, so that an administrator reads the quota of a department in one line. It limits the
children: if they add up to more, the largest of them count for less.
"""

from collections.abc import Iterable, Iterator, Mapping

from gangsched.core.model.pods import GPU, MILLI
from gangsched.core.model.queues import DEFAULT_QUEUE, Queue, Quota, QuotaKey, Stop, quota_label

UNLIMITED = 1 << 62
DEPTH_MAX = 16
SYSTEM_NAMESPACE = "kube-system"
PRIORITY_OF_USERS = 1_000_000_000
"""The API server rejects a PriorityClass above this, except its own system-* classes."""

PRIORITY_MAX = 2**31 - 1

AncestorPaths = tuple[tuple[str, ...], tuple[str, ...]]
"""Two paths up a tree, nearest queue first."""

_ANCESTOR_PATHS_MAX = 100_000


class QueueTree:
    """Queues by name; immutable.

    `problems` has the problem of each queue that cannot be used. `lowered` has the quotas that
    count for less than declared, and `notes` other messages about queues that can be used. The
    gangs of `drained` queues must end.
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
        """Return the queue and its ancestors up to the root, or record why there is no path."""
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
        """Set the nominal quotas of a queue: those declared, or else the sums of its children."""
        declared = self._declared[name] = {quota.key: quota for quota in self.queues[name].quotas}
        nominal = self._nominal[name] = {}
        for child in self.children.get(name, ()):
            for key, quantity in self._nominal[child].items():
                nominal[key] = nominal.get(key, 0) + quantity
        for key, quota in declared.items():
            if nominal.get(key, 0) > quota.nominal:
                self.notes.setdefault(name, []).append(
                    f"spec.quotas[{quota_label(key)}].nominal: the queues below it add up to "
                    f"{number(key, nominal[key])}, more than its {number(key, quota.nominal)}; "
                    f"the largest of them count for less than is written"
                )
            if quota.lending is not None and quota.lending > quota.nominal:
                self.notes.setdefault(name, []).append(
                    f"spec.quotas[{quota_label(key)}].lendingLimit: {number(key, quota.lending)} "
                    f"is more than its nominal {number(key, quota.nominal)}; all of that is lent"
                )
            nominal[key] = quota.nominal

    def _cap_children(self, name: str) -> None:
        """Lower the nominal quotas of the children of a queue to what it has."""
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
        """Record that a quota counts for less than declared, and because of which queue."""
        above = next(
            ancestor for ancestor in self._paths[name][1:] if key in self._declared[ancestor]
        )
        self.lowered.setdefault(name, {})[key] = (
            f"spec.quotas[{quota_label(key)}].nominal: "
            f"{number(key, self._declared[name][key].nominal)} counts as "
            f"{number(key, self._nominal[name][key])}, because queue {above}, above it, "
            f"has {number(key, self._nominal[above][key])} for all below it"
        )

    def _compute_guarantee(self, name: str) -> None:
        """Compute what a queue keeps and lends, after the queues below it."""
        # Quota that children keep is not in the pool of this queue.
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
        """Return the queue that is charged for a name: the queue itself, or else the default."""
        return name if name in self._paths else DEFAULT_QUEUE

    def admits(self, name: str, namespace: str) -> bool:
        """Return whether a queue, and all queues above it, admit gangs of a namespace."""
        path = self._paths.get(name, (name,))
        return all(self.queues[queue].admits(namespace) for queue in path)

    def open_to(self, namespace: str) -> Iterator[str]:
        """Yield the queues that gangs of a namespace may use, by name."""
        return (name for name in sorted(self._paths) if self.admits(name, namespace))

    def priority_max(self, name: str, namespace: str) -> tuple[int, str]:
        """Return the highest priority that gangs of a namespace may have, and which queue sets it.

        If no queue does, only namespace kube-system may use priorities above those of users.
        """
        limits = [
            (most, queue)
            for queue in self._paths.get(name, ())
            if (most := self.queues[queue].highest_priority) is not None
        ]
        usual = PRIORITY_MAX if namespace == SYSTEM_NAMESPACE else PRIORITY_OF_USERS
        return min(limits, default=(usual, ""))

    def exclusive(self, name: str) -> str:
        """Return the coarsest level at which gangs of a queue may have exclusive domains.

        The queue declares it, or else the nearest queue above it that does; "" if none does.
        """
        levels = (self.queues[queue].exclusive for queue in self._paths[name])
        return next((level for level in levels if level), "")

    def non_preemptible_may_borrow(self, name: str) -> bool:
        """Return whether gangs with `preemptible: false` in a queue may use borrowed quota."""
        return any(self.queues[queue].non_preemptible_may_borrow for queue in self._paths[name])

    def guaranteed(self) -> frozenset[QuotaKey]:
        """Return the resources for which any queue has nominal quota."""
        return self._guaranteed

    def nominal(self, name: str, key: QuotaKey) -> int | None:
        """Return the nominal quota of a queue; None if neither it nor a queue above it has one.

        It is less than declared if the queues above have less.
        """
        own = self._nominal[name].get(key)
        if own is not None:
            return own
        return 0 if key in self.quota_keys(name) else None

    def notices(self, name: str) -> list[str]:
        """Return the messages about a queue that can be used, a sentence each."""
        return [*self.lowered.get(name, {}).values(), *self.notes.get(name, ())]

    def nominal_quotas(self, name: str) -> Mapping[QuotaKey, int]:
        """Return the nominal quotas of a queue's subtree."""
        return self._nominal[name]

    def quota(self, name: str, key: QuotaKey) -> Quota | None:
        """Return the quota that the queue itself declares for a resource."""
        return self._declared[name].get(key)

    def subtree_quota(self, name: str, key: QuotaKey) -> int:
        """Return the part of the nominal quota that children do not keep."""
        return self._subtree_quota[name].get(key, 0)

    def guaranteed_quota(self, name: str, key: QuotaKey) -> int:
        """Return the part of the nominal quota that other queues cannot borrow."""
        return self._guaranteed_quota[name].get(key, 0)

    def guaranteed_quotas(self, name: str) -> Mapping[QuotaKey, int]:
        """Return the parts of all nominal quotas that other queues cannot borrow."""
        return self._guaranteed_quota[name]

    def quota_keys(self, name: str) -> tuple[QuotaKey, ...]:
        """Return the resources for which this queue or a queue above it has a quota."""
        known = self._quota_keys.get(name)
        if known is None:
            keys = {key for ancestor in self._paths[name] for key in self._nominal[ancestor]}
            known = self._quota_keys[name] = tuple(sorted(keys))
        return known

    def subtree(self, name: str) -> list[str]:
        """Return a queue and all queues below it."""
        names = [name]
        for queue in names:
            names += self.children.get(queue, ())
        return names

    def gpu_types(self, name: str) -> tuple[str, ...]:
        """Return the GPU types that have quotas of their own for this queue."""
        known = self._kinds.get(name)
        if known is None:
            known = self._kinds[name] = tuple(kind for _, kind in self.quota_keys(name) if kind)
        return known

    def paths_below_common_ancestor(self, name: str, other: str) -> AncestorPaths:
        """Return the two paths up to the nearest common ancestor, without it."""
        known = self._ancestor_paths.get((name, other))
        if known is None:
            path, other_path = self._paths[name], self._paths[other]
            common = next((queue for queue in path if queue in other_path), None)
            known = path, other_path
            if common is not None:
                known = path[: path.index(common)], other_path[: other_path.index(common)]
            if len(self._ancestor_paths) >= _ANCESTOR_PATHS_MAX:
                self._ancestor_paths.clear()
            self._ancestor_paths[(name, other)] = known
        return known

    def leaves(self) -> Iterator[str]:
        """Yield the queues without children, in name order."""
        return (name for name in sorted(self._paths) if name not in self.children)

    def top_down(self) -> list[str]:
        """Return all queues, each after its parent; those that cannot be used come last."""
        names: list[str] = []

        def down(name: str) -> None:
            for child in sorted(self.children.get(name, ())):
                names.append(child)
                down(child)

        down("")
        return names + sorted(name for name in self.queues if name not in self)


def _share_out(asked: Mapping[str, int], has: int) -> dict[str, int]:
    """Divide quota among children: the largest requests are reduced, the others get all."""
    shares: dict[str, int] = {}
    for name in sorted(asked, key=lambda name: (asked[name], name)):
        shares[name] = min(asked[name], has // (len(asked) - len(shares)))
        has -= shares[name]
    return shares


def number(key: QuotaKey, quantity: int) -> str:
    """Write a quantity of a quota without its resource."""
    resource, _ = key
    if resource in (GPU, "cpu"):
        return f"{quantity / MILLI:g}"
    if resource in ("memory", "ephemeral-storage"):
        return f"{quantity / 2**30:.3g} GiB"
    return str(quantity)


def format_quota(key: QuotaKey, quantity: int) -> str:
    """Write a quantity of a quota as its user would."""
    return f"{number(key, quantity)} {quota_label(key)}"
