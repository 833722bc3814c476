"""Checks a run from its facts: nodes, quotas, lent quota, whole gangs, queue usage, no loop.

The checker counts with its own arithmetic. It checks only what the last facts changed, so that it
can run after every event of a long run.
"""

from collections.abc import Iterable

from gangsched.core import facts as f
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.model.ids import GangId, NodeName, PodUid
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import GPU, MILLI, PodRequirements
from gangsched.core.model.queues import Queue, QuotaKey
from simulator.invariants.placement_checks import ViolationError, admits
from simulator.jobs import Job

_PARTIAL_S = 900.0
"""How long a gang may run below its minimum: its remaining pods need time to be evicted."""

_PODS: QuotaKey = ("pods", "")


class RunChecker:
    """Observes every fact, and raises at the first violation.

    `most` has the largest amounts that each queue's subtree ever held.
    """

    def __init__(self, engine: SchedulingEngine, queues: Iterable[Queue]) -> None:
        self.most: dict[str, dict[QuotaKey, int]] = {}
        self._engine = engine
        self._queues = {queue.name: queue for queue in queues}
        self._children: dict[str, list[str]] = {}
        for queue in self._queues.values():
            self._children.setdefault(queue.parent, []).append(queue.name)
        self._paths = {name: tuple(self._path(name)) for name in self._queues}
        self._keys = {
            name: {_PODS, *(quota.key for above in path for quota in self._queues[above].quotas)}
            for name, path in self._paths.items()
        }
        self._held: dict[str, dict[QuotaKey, int]] = {}
        self._nodes: dict[NodeName, Node] = {}
        self._used: dict[NodeName, dict[str, int]] = {}
        self._pods: dict[PodUid, f.PodSeen] = {}
        self._models: dict[PodUid, str] = {}
        self._gangs: dict[GangId, tuple[str, int]] = {}
        self._running: dict[GangId, int] = {}
        self._asked_known: dict[PodRequirements, tuple[tuple[str, int], ...]] = {}
        self._charged_known: dict[
            tuple[str, PodRequirements, str], tuple[tuple[QuotaKey, int], ...]
        ] = {}
        self._partial_s: dict[GangId, float] = {}
        self._assigned: dict[GangId, None] = {}
        self._changed_nodes: set[NodeName] = set()
        self._changed_gangs: set[GangId] = set()
        self._changed_queues: set[str] = set()

    def _path(self, name: str) -> Iterable[str]:
        while name in self._queues:
            yield name
            name = self._queues[name].parent

    # -- facts --------------------------------------------------------------------------------

    def observe(self, fact: f.Fact) -> None:
        """Count a fact that the engine observes as well."""
        match fact:
            case f.PodSeen() if fact.uid not in self._pods and fact.node is not None:
                self._pods[fact.uid] = fact
                self._count(fact, 1)
            case f.PodGone(uid) | f.PodSeen(uid=uid, ended=True) if uid in self._pods:
                self._count(self._pods.pop(uid), -1)
            case f.NodeSeen(node):
                self._nodes[node.name] = node
                self._changed_nodes.add(node.name)
            case f.NodeGone(name):
                self._nodes.pop(name, None)
            case f.GangSeen(gang):
                self._gangs[gang.id] = (gang.queue, gang.min_member)
                self._changed_queues.update(self._paths.get(gang.queue, (gang.queue,)))
            case f.GangGone(gang_id):
                queue, _ = self._gangs.pop(gang_id, ("", 0))
                self._changed_queues.update(self._paths.get(queue, (queue,)))
            case _:
                pass

    def restarted(self, engine: SchedulingEngine) -> None:
        """Note a restart of the scheduler, which frees the assignments that are not bound."""
        self._engine = engine
        self._assigned.clear()
        self._changed_queues.update(self._queues)

    def assigned(self, gang: GangId) -> None:
        """Note that a gang has an assignment, or waits for preempted gangs to free one."""
        self._assigned[gang] = None
        self._changed_gangs.add(gang)

    def _count(self, pod: f.PodSeen, sign: int) -> None:
        assert pod.node is not None, "pods that are counted run"  # noqa: S101
        used = self._used.setdefault(pod.node, {})
        for resource, quantity in self._asked(pod.needs):
            used[resource] = used.get(resource, 0) + sign * quantity
        self._changed_nodes.add(pod.node)
        if pod.gang is None:
            return
        self._running[pod.gang] = self._running.get(pod.gang, 0) + sign
        self._changed_gangs.add(pod.gang)
        queue, _ = self._gangs.get(pod.gang, ("default", 0))
        node = self._nodes.get(pod.node)
        if sign > 0:  # the node may be gone when the pod is
            self._models[pod.uid] = node.gpu_model if node is not None else ""
        model = self._models[pod.uid] if sign > 0 else self._models.pop(pod.uid)
        for name in self._paths.get(queue, (queue,)):
            self._changed_queues.add(name)
            held = self._held.setdefault(name, {})
            for key, quantity in self._charged(name, pod.needs, model):
                held[key] = held.get(key, 0) + sign * quantity

    def _asked(self, needs: PodRequirements) -> tuple[tuple[str, int], ...]:
        """Return what a pod requests, GPUs in thousandths."""
        known = self._asked_known.get(needs)
        if known is None:
            known = self._asked_known[needs] = tuple(_asked(needs))
        return known

    def _charged(
        self, queue: str, needs: PodRequirements, model: str
    ) -> tuple[tuple[QuotaKey, int], ...]:
        """Return what a pod on GPUs of this model uses of a queue's quotas and its ancestors'."""
        known = self._charged_known.get((queue, needs, model))
        if known is None:
            known = self._charged_known[queue, needs, model] = tuple(
                (key, quantity)
                for resource, quantity in self._asked(needs)
                for key in self._keys.get(queue, (_PODS,))
                if key[0] == resource and key[1] in model
            )
        return known

    # -- checks -------------------------------------------------------------------------------

    def check(self, now_s: float) -> None:
        """Check what changed since the last check.

        Raises:
            ViolationError: an invariant does not hold.

        """
        for node in self._changed_nodes:
            self._node(node, now_s)
        for gang in self._changed_gangs:
            self._whole(gang, now_s)
        for gang, since_s in self._partial_s.items():
            if now_s - since_s > _PARTIAL_S:
                raise ViolationError(
                    f"t={now_s:.3f} {gang} has run {self._running.get(gang, 0)} of at least "
                    f"{self._gangs[gang][1]} pods since t={since_s:.3f}"
                )
        for name in self._changed_queues:
            if name in self._queues:
                self._bounds(self._queues[name], now_s)
            self._ledger(name, now_s)
        self._changed_nodes.clear()
        self._changed_gangs.clear()
        self._changed_queues.clear()
        if self._engine.view.mutual_preemptions:
            raise ViolationError(f"t={now_s:.3f} gangs preempt each other in turn")

    def over(self, waiting: Iterable[Job], now_s: float) -> None:
        """Check the end of a run: jobs that are still pending could never have started.

        Raises:
            ViolationError: nothing runs, and there is capacity and quota for a pending job.

        """
        if any(self._running.values()):
            return
        for job in waiting:
            least = job.pods if job.minimum is None else job.minimum
            if len(job.pieces()) > 1:
                continue  # counting does not show whether pods of several classes fit together
            fitting = self._fitting(job.pieces()[0].needs)
            if fitting >= least and self._allowed(job, least):
                raise ViolationError(
                    f"t={now_s:.3f} {job.id} stays pending although it fits the empty cluster"
                )

    def _fitting(self, needs: PodRequirements) -> int:
        """Return how many of these pods fit on the empty cluster."""
        count = 0
        for node in self._nodes.values():
            has = dict(node.allocatable)
            fits = (
                has.get(resource, 0) * (MILLI if resource == GPU else 1) // quantity
                for resource, quantity in _asked(needs)
                if quantity
            )
            count += min(fits) if admits(node, needs) else 0
        return count

    def _allowed(self, job: Job, least: int) -> bool:
        """Return whether the quotas of the job's queue and its ancestors admit so many pods."""
        asked = dict(_asked(job.pieces()[0].needs))
        for name in self._paths.get(job.queue, ()):
            queue = self._queues[name]
            for quota in queue.quotas:
                borrowing = 0 if not queue.parent else quota.borrowing
                whole = asked.get(quota.resource, 0) * least
                if borrowing is not None and whole > quota.nominal + borrowing:
                    return False
                if not queue.parent and whole > quota.nominal - self._kept(name, quota.key):
                    return False
        return True

    def _node(self, name: NodeName, now_s: float) -> None:
        node = self._nodes.get(name)
        if node is None:
            return  # the node is gone, and its pods with it
        has = dict(node.allocatable)
        for resource, quantity in self._used.get(name, {}).items():
            unit = MILLI if resource == GPU else 1
            if quantity > has.get(resource, 0) * unit:
                raise ViolationError(
                    f"t={now_s:.3f} {name} holds {quantity / unit:g} {resource} of "
                    f"{has.get(resource, 0)}"
                )

    def _whole(self, gang: GangId, now_s: float) -> None:
        running = self._running.get(gang, 0)
        if gang in self._gangs and 0 < running < self._gangs[gang][1]:
            self._partial_s.setdefault(gang, now_s)
            return
        self._partial_s.pop(gang, None)
        if not running and gang not in self._gangs:
            self._running.pop(gang, None)

    def _bounds(self, queue: Queue, now_s: float) -> None:
        """Check that a queue holds at most its nominal plus borrowed quota, a root its nominal.

        Quota that a queue does not lend is used by no sibling.
        """
        held = self._held.get(queue.name, {})
        most = self.most.setdefault(queue.name, {})
        for quota in queue.quotas:
            has = held.get(quota.key, 0)
            most[quota.key] = max(most.get(quota.key, 0), has)
            if quota.borrowing is not None and has > quota.nominal + quota.borrowing:
                raise ViolationError(
                    f"t={now_s:.3f} queue {queue.name} holds {has} {quota.key}: more than "
                    f"{quota.nominal} and {quota.borrowing} borrowed"
                )
            kept = 0 if queue.parent else self._kept(queue.name, quota.key)
            if not queue.parent and has > quota.nominal - kept:
                raise ViolationError(
                    f"t={now_s:.3f} queue {queue.name} holds {has} {quota.key} of "
                    f"{quota.nominal}, of which {kept} are not lent"
                )

    def _kept(self, name: str, key: QuotaKey) -> int:
        """Return the unused quota that children do not lend."""
        kept = 0
        for child in self._children.get(name, ()):
            quota = next(
                (candidate for candidate in self._queues[child].quotas if candidate.key == key),
                None,
            )
            if quota is not None and quota.lending is not None:
                used = self._held.get(child, {}).get(key, 0)
                kept += max(quota.nominal - quota.lending - used, 0)
        return kept

    def _ledger(self, name: str, now_s: float) -> None:
        """Check that the ledger counts the pods that run, plus the assigned and unbound pods."""
        ledger = self._engine.view.ledger.usage
        if name not in ledger.tree:
            return
        reserved = 0
        for gang in list(self._assigned):
            state = self._engine.view.gangs.get(gang)
            count = state.members.in_progress() if state is not None else 0
            if not count:
                del self._assigned[gang]
            elif name in self._paths.get(self._gangs[gang][0], (self._gangs[gang][0],)):
                reserved += count
        runs = self._held.get(name, {}).get(_PODS, 0)
        booked = ledger.used(name, _PODS)
        if booked != runs + reserved:
            raise ViolationError(
                f"t={now_s:.3f} queue {name}: {booked} pods in the ledger, but {runs} run and "
                f"{reserved} are assigned"
            )


def _asked(needs: PodRequirements) -> list[tuple[str, int]]:
    """Return what a pod requests, GPUs in thousandths."""
    amounts = [("pods", 1)]
    gpus = 0
    for resource, quantity in needs.requests:
        if resource == GPU:
            gpus += quantity * MILLI
        else:
            amounts.append((resource, quantity))
    if needs.share is not None:
        gpus += needs.share.milli * needs.share.devices
    return [*amounts, (GPU, gpus)] if gpus else amounts
