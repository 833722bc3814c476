"""The charges of nodes and queues; all changes of either are made here.

Each charge counts on a node and, if it belongs to a gang, in its queue, both under one key: the
usage of a queue and that of the nodes are two sums over the same keys.
"""

from collections.abc import Hashable, Iterable, Mapping

from gangsched.core import facts as f
from gangsched.core.cluster.gpu_sharing import Devices
from gangsched.core.cluster.state import Cluster
from gangsched.core.engine.allocation.declarations import Declarations
from gangsched.core.engine.allocation.freed_generation import FreedGeneration
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.model.gangs import UNKNOWN_USER
from gangsched.core.model.ids import GangId, NodeName
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import GPU, MILLI, PodRequirements
from gangsched.core.model.queues import CREDITS, DEFAULT_QUEUE, QuotaKey, charged_amounts
from gangsched.core.quota.ledger import Allocation, Ledger
from gangsched.core.quota.queue_tree import QueueTree


class Allocations:
    """Charges of nodes and queues, and their sums.

    A charge that is released, and a node that changes, advance the generation of freed capacity.
    """

    def __init__(
        self,
        ledger: Ledger,
        declarations: Declarations,
        gangs: Mapping[GangId, GangState],
        freed: FreedGeneration,
    ) -> None:
        self.cluster = Cluster()
        """The nodes and their charges; other parts change them only through this class."""
        self.stopping: dict[NodeName, float] = {}
        """Nodes that are announced to stop, and when."""
        self.drift = 0
        """Differences that audits found and corrected."""
        self.now_s = 0.0
        """The latest time of any call; GPU time is counted up to it, and never back."""
        self._ledger = ledger
        """Every charge of a gang, under its key in the cluster."""
        self._declarations = declarations
        self._gangs = gangs
        self._freed = freed
        self._queues_version = declarations.queues_version
        """The version of the queues in the tree of the ledger."""
        self._capacity: tuple[tuple[int, int], dict[QuotaKey, int]] | None = None
        """The capacity of the cluster, and the versions of nodes and queues that it is for."""

    def advance_to(self, now_s: float) -> None:
        """Advance the clock of GPU time."""
        self.now_s = max(now_s, self.now_s)

    @property
    def ledger(self) -> Ledger:
        """The usage of queues, by the latest declared tree.

        The tree is built once for all changes since it was read last.
        """
        if self._queues_version != self._declarations.queues_version:
            self._queues_version = self._declarations.queues_version
            self._ledger.set_tree(QueueTree(self._declarations.queues.values()), self.now_s)
        return self._ledger

    def ledger_with_capacity(self) -> Ledger:
        """Return the ledger with the present capacity, of which shares are fractions."""
        ledger = self.ledger
        ledger.usage.capacity = self.capacity()
        return ledger

    # -- nodes --------------------------------------------------------------------------------

    def put_node(self, node: Node) -> bool:
        """Add or update a node; return whether anything about it changed."""
        changed = self.cluster.put_node(node)
        self.stopping.pop(node.name, None)
        if node.stop_by_s is not None:
            self.stopping[node.name] = node.stop_by_s
        if changed:
            self._freed.advance()
        return changed

    def remove_node(self, name: NodeName) -> bool:
        """Remove a node; return whether it was there. Its charges stay until they are released."""
        self.stopping.pop(name, None)
        return self.cluster.remove_node(name)

    def set_topologies(self) -> None:
        """Set the topologies of the cluster to those that are declared now."""
        self.cluster.set_topologies(self._declarations.topologies_in_order())

    def capacity(self) -> dict[QuotaKey, int]:
        """Return the capacity of the whole cluster in the units of quotas; cached."""
        stamp = (self.cluster.version, self._declarations.version)
        if self._capacity is None or self._capacity[0] != stamp:
            self._capacity = stamp, self._sum()
        return self._capacity[1]

    def _sum(self) -> dict[QuotaKey, int]:
        totals: dict[QuotaKey, int] = {}
        for resource in ("cpu", "memory", GPU):
            column = self.cluster.allocatable[:, self.cluster.resources.index(resource)]
            total = sum(column[self.cluster.live].tolist())
            totals[(resource, "")] = total * MILLI if resource == GPU else total
        if self.ledger.gpu_weights.weights:
            totals[CREDITS] = round(self._worth())
            totals.pop((GPU, ""), None)
        return totals

    def _worth(self) -> float:
        worth = 0.0
        for node in self.cluster.nodes:
            if node is not None:
                gpus = dict(node.allocatable).get(GPU, 0)
                worth += gpus * MILLI * self.ledger.gpu_weights.of(node.gpu_model)
        return worth

    # -- charges ------------------------------------------------------------------------------

    def charge(
        self,
        key: Hashable,
        node: NodeName,
        needs: PodRequirements,
        gang: GangId | None,
        devices: Devices = (),
    ) -> Devices:
        """Charge a node, and the queue of the gang; return the shared GPUs."""
        if gang is not None:
            queue, user = self._account(gang)
            model = self._model(node)
            held = Allocation(gang, queue, user, charged_amounts(needs), model, self.is_firm(gang))
            self.ledger.charge(key, held, self.now_s)
        return self.cluster.allocate(key, node, needs, gang, devices)

    def release(self, key: Hashable) -> bool:
        """Release the charge of a key; return whether there was one."""
        self.ledger.discharge(key, self.now_s)
        released = self.cluster.release(key)
        if released:
            self._freed.advance()
        return released

    def transfer(
        self, place: Hashable, pod: Hashable, node: NodeName, needs: PodRequirements
    ) -> None:
        """Move the charge of an assignment to its pod, or release it if the pod differs."""
        if self.cluster.allocated(place) == (node, needs) and self.cluster.allocated(pod) is None:
            self.rename(place, pod)
        else:
            self.release(place)

    def rename(self, key: Hashable, other: Hashable) -> None:
        """Move the charge of a key to another key, which has none."""
        self.ledger.rekey(key, other)
        self.cluster.rekey(key, other)

    def reassign(self, gang: GangState) -> None:
        """Count the charges of a gang for its present account."""
        self.ledger.move(gang.id, gang.account, self.now_s, firm=self.is_firm(gang.id))

    def note_admitted(self, gang: GangState) -> None:
        """Record the charge of a gang: refills of lost members may use as much again."""
        for key, quantity in self.ledger.usage_of_gang(gang.id).items():
            gang.run.admitted[key] = max(gang.run.admitted.get(key, 0), quantity)

    def forget(self, gang: GangState) -> None:
        """Release the charges of all members of a gang, and its exclusive domains."""
        for member in gang.members.values():
            self.release((gang.id, member.name))
        self.cluster.exclusive_domains.pop(gang.id, None)

    def is_firm(self, gang: GangId) -> bool:
        """Return whether a gang may not be preempted."""
        state = self._gangs.get(gang)
        return state is not None and state.spec is not None and not state.spec.preemptible

    def within_limits(self, gang: GangState) -> bool:
        """Return whether no queue of a gang exceeds its limits."""
        usage = self.ledger.usage
        return not usage.exceeds_limits(usage.tree.charged_queue(gang.account[0]))

    def _account(self, gang: GangId) -> tuple[str, str]:
        state = self._gangs.get(gang)
        return state.account if state is not None else (DEFAULT_QUEUE, UNKNOWN_USER)

    def _model(self, node: NodeName) -> str:
        row = self.cluster.rows.get(node)
        return self.cluster.gpu_model(row) if row is not None else ""

    # -- past usage ----------------------------------------------------------------

    def restore_usage(self, fact: f.UsageRestored) -> None:
        """Restore the GPU time that an earlier process counted, unless this one counted already."""
        ledger = self._ledger  # not by the newest tree: each of a thousand queues changes it
        time = ledger.account((fact.queue, fact.user))
        if time.historical_gpu_s:
            return
        time.advance_to(self.now_s, ledger.half_life_s)
        passed_s = max(self.now_s - fact.at_s, 0.0)
        time.historical_gpu_s += fact.historical_gpu_s * 0.5 ** (passed_s / ledger.half_life_s)
        for period_s, number, spent in fact.spent:
            if number == int(self.now_s // period_s):
                known = time.periods.get(period_s, (number, 0.0))[1]
                time.periods[period_s] = (number, known + spent)

    def audit(self, pods: Iterable[f.PodSeen]) -> dict[str, int]:
        """Compare the ledger with the pods and assignments that exist; correct differences."""
        truth: dict[Hashable, Allocation] = {}
        for pod in pods:
            if pod.gang is not None and pod.node is not None and not pod.ended:
                truth[pod.uid] = self._expected(pod.uid, pod.gang, pod.node, pod.needs)
        for gang in self._gangs.values():
            for member in gang.members.values():
                if member.stage is not None and member.assigned_node is not None:
                    key = (gang.id, member.name)
                    truth[key] = self._expected(key, gang.id, member.assigned_node, member.needs)
        wrong = self.ledger.audit(truth, self.now_s)
        self.drift += sum(wrong.values())
        return wrong

    def _expected(
        self, key: Hashable, gang: GangId, node: NodeName, needs: PodRequirements
    ) -> Allocation:
        known = self.ledger.allocation(key)
        model = self._model(node) or (known.model if known is not None else "")
        return Allocation(
            gang, *self._account(gang), charged_amounts(needs), model, self.is_firm(gang)
        )
