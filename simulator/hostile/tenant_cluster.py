"""A cluster of two tenants in virtual time, with the real decoders, engine and planner.

The hostile tenant creates, changes and deletes any objects that an API server admits. The other one
submits small gangs one after the other, for which there is capacity. Objects come as bytes, as in a
watch. Orders are carried out at once, and their effects are checked on the record of real pods.
"""

import json
import logging
from typing import Any, Self

from gangsched.api import names
from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.model.ids import GangId, PodUid
from gangsched.core.planning.forecast import Effort, forecast
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import PolicyError
from gangsched.kube.background.advisor import LiveAdvisor
from gangsched.kube.informers.base import Informer
from gangsched.kube.service import Scheduler
from gangsched.metrics import Metrics
from gangsched.operators.evaluation.pool import Evaluators
from gangsched.plugins import load_policies
from simulator.hostile import jobs, verdict
from simulator.hostile.controllers import Controllers
from simulator.hostile.declared import (
    declared,
    group_of,
    keeping_gpus,
    key_of,
    namespace,
    raw,
    says_gpus,
)
from simulator.hostile.objects import NAMESPACE, VICTIM, accepted
from simulator.hostile.templates import Json
from simulator.hostile.truth import RealPod, Truth, allocated, kubelet_requests

CYCLE_S = 1.0
PLANNED_MAX = 20_000
"""Planned pods that a namespace may have: less than the default, so that a history stays fast."""

_POD_GROUP = f"PodGroup.{names.GROUP}/{names.VERSION}"


class _NoClient:
    """Answers the calls of the advisor: the cluster has no disruption budgets."""

    async def get(self, _path: str, **_params: str) -> bytes:
        return b'{"items": []}'


class TenantCluster:
    """The cluster; `violations` has a sentence for each broken invariant."""

    def __init__(
        self, evaluators: Evaluators, *, borrowing: bool = False, admission: bool = True
    ) -> None:
        """With `borrowing`, the hostile tenant may borrow the unused quota of the other.

        Without `admission`, the API server admits pods that choose their shared GPUs (gpus.yaml).
        """
        self.borrowing = borrowing
        self._admission = admission
        self.truth = Truth()
        self.violations: list[str] = []
        self.controllers = Controllers(evaluators, self.violations)
        self.objects: dict[str, Json] = {}
        self.now_s = 1_700_000_000.0
        self._config = SchedulerConfig(planned_pods_max=PLANNED_MAX)
        self._policies = load_policies(self._config)
        self.bytes_max = self._bytes = 0
        self._keys: set[tuple[str, ...]] = set()
        self._uids = 0
        self._arrived: list[str] = []
        self._larger: dict[str, Json] = {}
        self._without_pods: set[str] = set()
        self._looked_at: set[str] = set()
        self._declared: list[tuple[str, Json]] = list(declared(borrowing=borrowing))
        self._handler = verdict.Complaints(self.violations)
        self._start()
        self.scheduler.ready.set()

    def __enter__(self) -> Self:
        logging.getLogger("gangsched").addHandler(self._handler)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("gangsched").removeHandler(self._handler)

    # -- the scheduler ------------------------------------------------------------------------

    def _start(self) -> None:
        client: Any = _NoClient()
        self._orders: list[o.Order] = []
        self.scheduler = scheduler = Scheduler(
            client,
            self._config,
            self._policies,
            Metrics(),
            now_s=lambda: self.now_s,
            dispatch=self._orders.append,
        )
        scheduler.engine.driver_checks_unmodelled = False
        self._advisor = LiveAdvisor(client, self._config, self._policies)
        self._readers: dict[str, Informer] = {
            "PriorityClass": scheduler.informers.priority_classes,
            "Namespace": scheduler.informers.namespaces,
            "Topology": scheduler.informers.topologies,
            "Queue": scheduler.informers.queues,
            "Node": scheduler.informers.nodes,
            "Pod": scheduler.informers.pods,
            _POD_GROUP: scheduler.informers.pod_groups,
        }
        owners = scheduler.informers.owners
        external = (*owners.groups, *owners.receivers)
        self._readers |= {informer.kind: informer for informer in external}
        for name, document in self._declared:
            self._readers[name].on_update(raw(document))

    def restart(self) -> None:
        """Start a new scheduler that knows only the stored objects."""
        self._start()
        for pod in list(self.truth.pods.values()):
            self._readers["Pod"].on_update(raw(pod.document))
        for document in list(self.objects.values()):
            if (reader := self._reader(document)) is not None:
                reader.on_update(raw(document))
        self.scheduler.ready.set()
        self.settle()

    def _reader(self, document: Json) -> Informer | None:
        if document["kind"] == "Pod":
            return self._readers["Pod"]
        return self._readers.get(f"{document['kind']}.{document['apiVersion']}")

    def plan(self) -> None:
        """Advance the clock, plan once, and carry out the orders."""
        self._run_static_pods()
        self.now_s += CYCLE_S
        engine = self.scheduler.engine
        self.scheduler.driver.tick()
        if engine.has_pending_work():
            snapshot = engine.begin_cycle(self.now_s, pods_max=2_000)
            try:
                plan = make_plan(snapshot, self._policies, self.now_s)
            except PolicyError as error:
                self.scheduler.driver.observe(f.PlanFailed(error.gang, error.problem))
            else:
                self.scheduler.driver.accept(plan)
        self.settle()

    async def think(self) -> None:
        """Advise pending gangs, and forecast their starts."""
        engine = self.scheduler.engine
        if due := engine.take_advice_requests(2, self.now_s):
            await self._advisor.refresh(engine, self.now_s)
            for waiting, refusal in due:
                self.scheduler.driver.accept(
                    self._advisor.plan_advice(waiting, refusal, self._advisor.on(waiting))
                )
        snapshot = engine.view.snapshot_all(self.now_s)
        if snapshot.pending:
            forecast(snapshot, self._policies, self.now_s, Effort(1, 5, 50))
        self.settle()

    # -- calls of tenants ---------------------------------------------------------------------

    def create(
        self, document: Json, larger: Json | None = None, *, without_pods: bool = False
    ) -> None:
        """Create an object; pods created for it request the `larger` amounts, not its own."""
        metadata, key = document["metadata"], key_of(document)
        if key in self._keys or not accepted(document):
            return
        if self._admission and says_gpus(document):
            return
        self._keys.add(key)
        self._bytes += len(raw(document))
        self.bytes_max = max(self._bytes, self.bytes_max)
        self._uids += 1
        stamped: Json = {"uid": f"u{self._uids:06}", "resourceVersion": str(self._uids)}
        stamped |= {"creationTimestamp": "2023-11-14T22:13:20Z", "generation": 1}
        document = {**document, "metadata": {**metadata, **stamped}}
        uid = document["metadata"]["uid"]
        if document["kind"] == "Pod":
            self.truth.pods[uid] = RealPod(document, kubelet_requests(document["spec"]))
            self._show(document)
            if document["spec"].get("nodeName"):
                self._arrived.append(uid)
        else:
            self.objects[uid] = document
            if larger:
                self._larger[group_of(document)] = larger
            if without_pods:
                self._without_pods.add(group_of(document))
            self._show(document)
        self.settle()

    async def look(self) -> None:
        """Have the job controllers reconcile every new owner."""
        for uid in [uid for uid in self.objects if uid not in self._looked_at]:
            document = self.objects[uid]
            self._looked_at.add(uid)
            if self._reader(document) is None or document["kind"] in jobs.KINDS:
                for group in await self.controllers.look(document):
                    copy = json.loads(json.dumps(group))
                    copy["metadata"]["namespace"] = namespace(document)
                    self.create(copy)

    def edit(self, uid: str, document: Json) -> None:
        """Change an object; of pods only labels and annotations."""
        if not accepted(document):
            return
        if self._admission and uid in self.truth.pods:
            document = keeping_gpus(document, self.truth.pods[uid].document)
        if uid in self.truth.pods:
            self.truth.pods[uid].document = document
            self.truth.pods[uid].asks = allocated(document)
        else:
            self.objects[uid] = document
            self._looked_at.discard(uid)
        self._show(document)
        self.settle()

    def delete(self, uid: str) -> None:
        """Delete an object."""
        if uid in self.truth.pods:
            self.pod_goes(uid)
        else:
            document = self.objects.pop(uid)
            self._left(document)
            self.truth.assigned.pop(group_of(document), None)
            if (reader := self._reader(document)) is not None:
                reader.on_delete(uid, None)
        self.settle()

    def mine(self) -> list[str]:
        """Return the uids of the hostile tenant's objects, the oldest first."""
        uids = [uid for uid, pod in self.truth.pods.items() if pod.namespace == NAMESPACE]
        uids += [uid for uid, document in self.objects.items() if namespace(document) == NAMESPACE]
        return sorted(uids)

    def document(self, uid: str) -> Json:
        """Return an object."""
        return self.truth.pods[uid].document if uid in self.truth.pods else self.objects[uid]

    def _show(self, document: Json) -> None:
        if (reader := self._reader(document)) is not None:
            reader.on_update(raw(document))

    def _run_static_pods(self) -> None:
        """Run pods that were created with a node; those that do not fit fail."""
        arrived, self._arrived = self._arrived, []
        for pod in [self.truth.pods[uid] for uid in arrived if uid in self.truth.pods]:
            fits = self.truth.admits(pod)
            phase = {"phase": "Running"} if fits else {"phase": "Failed", "reason": "OutOfcpu"}
            pod.document = {**pod.document, "status": phase}
            self._show(pod.document)

    def pod_goes(self, uid: str) -> None:
        """Delete a pod at once."""
        pod = self.truth.pods.pop(uid)
        self._left(pod.document)
        self._readers["Pod"].on_delete(uid, raw(pod.document))

    def _left(self, document: Json) -> None:
        self._keys.discard(key_of(document))
        self._bytes -= len(raw(document))

    # -- orders -------------------------------------------------------------------------------

    def settle(self) -> None:
        """Carry out the scheduler's orders."""
        while self._orders:
            orders = self._orders.copy()
            self._orders.clear()
            for order in orders:
                self._carry_out(order)

    def _carry_out(self, order: o.Order) -> None:
        match order:
            case o.Reserve():
                self._reserved(order)
            case o.Release():
                self.truth.assigned.pop(order.gang, None)
                self._write(order.gang, {"assignments": []})
            case o.Prepare() if order.uid in self.truth.pods:
                self.scheduler.driver.observe(f.Prepared(order.uid, order.node))
            case o.Bind() if order.uid in self.truth.pods:
                self._bind(order)
            case o.Evict() if order.uid in self.truth.pods:
                if self.truth.pods[order.uid].namespace == VICTIM:
                    self.violations.append(f"pod {order.name} is evicted: {order.reason}")
                self.pod_goes(order.uid)
            case o.Report():
                self._write(order.gang, {"phase": order.state})
            case _:
                pass

    def _write(self, gang: GangId, status: Json) -> None:
        for uid, document in self.objects.items():
            if group_of(document) == gang:
                self.objects[uid] = {**document, "status": {**document.get("status", {}), **status}}

    def _reserved(self, order: o.Reserve) -> None:
        """Store an assignment, and create the pods of a group that has none."""
        group = next(
            (document for document in self.objects.values() if group_of(document) == order.gang),
            None,
        )
        if group is None:
            return
        places = [{"pod": pod.split("/", 1)[1], "node": node} for pod, node in order.assignments]
        self._write(order.gang, {"phase": "Reserved", "assignments": places})
        namespace, name = order.gang.split("/", 1)
        assigned = self.truth.assigned.setdefault(order.gang, {})
        for pod, node in order.assignments:
            assigned[pod] = (node, {})
        roles = group["spec"].get("roles", ())
        if order.gang in self._without_pods or not all("template" in role for role in roles):
            return
        for role in roles:
            spec = json.loads(json.dumps(role["template"].get("spec", {})))
            if larger := self._larger.get(order.gang):
                spec["containers"] = [{"name": "c", "resources": {"requests": larger}}]
            stem = f"{name}-{role['name'].lower()}-"
            labels = {names.POD_GROUP_LABEL: name, names.ROLE_LABEL: role["name"]}
            for pod, node in order.assignments:
                short = pod.split("/", 1)[1]
                if short.startswith(stem) and short.removeprefix(stem).isdigit():
                    assigned[pod] = (node, kubelet_requests(role["template"].get("spec", {})))
                    annotations = (role["template"].get("metadata") or {}).get("annotations") or {}
                    metadata = {"name": short, "namespace": namespace, "labels": labels}
                    body = {"apiVersion": "v1", "kind": "Pod", "spec": spec}
                    self.create(body | {"metadata": metadata | {"annotations": annotations}})

    def _bind(self, order: o.Bind) -> None:
        pod = self.truth.pods[PodUid(order.uid)]
        before = set(self.truth.overcommitted(order.node))
        spec = {**pod.document["spec"], "nodeName": str(order.node)}
        pod.document = {**pod.document, "spec": spec, "status": {"phase": "Running"}}
        pod.by_us, pod.devices = True, order.devices
        if order.devices:
            metadata = pod.document["metadata"]
            annotations = metadata.get("annotations", {})
            annotations = {
                **annotations,
                names.DEVICES_ANNOTATION: ",".join(map(str, order.devices)),
            }
            pod.document = {**pod.document, "metadata": {**metadata, "annotations": annotations}}
        self.violations += [
            f"binding {order.name} to {order.node}: {sentence}"
            for sentence in self.truth.overcommitted(order.node)
            if sentence not in before
        ]
        if not self.borrowing:
            self.violations += verdict.beyond_limit(self.truth, str(order.name))
        self.scheduler.driver.observe(f.Bound(order.uid, order.node))
        self._show(pod.document)
