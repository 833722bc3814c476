"""The other tenant, with small gangs that must start in time."""

from dataclasses import dataclass

from gangsched.api import names
from gangsched.core.model.ids import GangId
from simulator.hostile import verdict
from simulator.hostile.declared import CONTAINER, namespace
from simulator.hostile.objects import VICTIM
from simulator.hostile.templates import Json
from simulator.hostile.tenant_cluster import TenantCluster

CYCLES_MAX = 40
"""Planning cycles within which a small gang has to run if there is capacity."""

_PODS = 2


@dataclass(slots=True)
class Victim:
    """Starts gangs of two pods; every second one is planned before its pods exist.

    `cycles_max` is the largest number of cycles that a gang took.
    """

    cluster: TenantCluster
    gangs: int = 0
    cycles_max: int = 0

    def serve(self, cycles: int = CYCLES_MAX) -> None:
        """Start a gang, which has to run within `cycles` planning cycles."""
        name = f"gang-{self.gangs}"
        self.gangs += 1
        self._create(name)
        for cycle in range(1, cycles + 1):
            self.cluster.plan()
            if self._bound(name) == _PODS:
                self.cycles_max = max(self.cycles_max, cycle)
                engine = self.cluster.scheduler.engine
                self.cluster.violations += verdict.audit(engine.view, self.cluster.truth)
                return
        self._complain(name, cycles)

    def _create(self, name: str) -> None:
        spec: Json = {"schedulerName": "gangsched", "containers": [CONTAINER]}
        group: Json = {"minMember": _PODS, "queue": VICTIM}
        planned = self.gangs % 2
        if planned:
            group["roles"] = [{"name": "w", "count": _PODS, "template": {"spec": spec}}]
        metadata = {"name": name, "namespace": VICTIM}
        head = {"apiVersion": f"{names.GROUP}/{names.VERSION}", "kind": "PodGroup"}
        self.cluster.create(head | {"metadata": metadata, "spec": group})
        for index in range(0 if planned else _PODS):
            labels = {names.POD_GROUP_LABEL: name}
            pod = {"name": f"{name}-{index}", "namespace": VICTIM, "labels": labels}
            self.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": spec})

    def _bound(self, group: str) -> int:
        return sum(
            pod.holds and pod.document["metadata"]["labels"].get(names.POD_GROUP_LABEL) == group
            for pod in self.cluster.truth.pods.values()
            if pod.namespace == VICTIM
        )

    def _complain(self, name: str, cycles: int) -> None:
        engine, gang_id = self.cluster.scheduler.engine, GangId(f"{VICTIM}/{name}")
        gang, why = engine.view.gangs.get(gang_id), engine.view.refusals.get(gang_id)
        state = f"{gang.state.value if gang else 'unknown'}: {why.message if why else 'no reason'}"
        self.cluster.violations.append(
            f"gang {name} of {VICTIM} does not run within {cycles} cycles: {state}"
        )

    def leave(self) -> None:
        """Delete every gang."""
        cluster = self.cluster
        for pod in [pod for pod in cluster.truth.pods.values() if pod.namespace == VICTIM]:
            cluster.pod_goes(pod.uid)
        for uid in [
            uid for uid, document in cluster.objects.items() if namespace(document) == VICTIM
        ]:
            cluster.delete(uid)
        cluster.settle()


def end(cluster: TenantCluster, victim: Victim) -> None:
    """Delete all objects of both tenants, and check that the engine keeps nothing of them."""
    for uid in cluster.mine():
        if uid in cluster.truth.pods or uid in cluster.objects:
            cluster.delete(uid)
    victim.leave()
    for _ in range(3):
        cluster.plan()
    cluster.violations += verdict.left(cluster.scheduler.engine.view)
