"""The tenant who only wants small gangs to start, and what she may expect."""

from dataclasses import dataclass

from gangsched.api import names
from gangsched.core.model.ids import GangId
from simulator.hostile import verdict
from simulator.hostile.declared import CONTAINER, namespace
from simulator.hostile.objects import VICTIM
from simulator.hostile.templates import Json
from simulator.hostile.world import World

CYCLES_MAX = 40
"""Planning cycles within which a small gang with room has to run."""

_PODS = 2


@dataclass(slots=True)
class Victim:
    """Starts gangs of two pods, planned before they exist and not by turns.

    `cycles_max` is the most that any of them took.
    """

    world: World
    gangs: int = 0
    cycles_max: int = 0

    def serve(self, cycles: int = CYCLES_MAX) -> None:
        """Start a gang, which has to run within so many planning cycles."""
        name = f"gang-{self.gangs}"
        self.gangs += 1
        self._create(name)
        for cycle in range(1, cycles + 1):
            self.world.plan()
            if self._bound(name) == _PODS:
                self.cycles_max = max(self.cycles_max, cycle)
                engine = self.world.scheduler.engine
                self.world.violations += verdict.audit(engine, self.world.truth)
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
        self.world.create(head | {"metadata": metadata, "spec": group})
        for index in range(0 if planned else _PODS):
            labels = {names.POD_GROUP_LABEL: name}
            pod = {"name": f"{name}-{index}", "namespace": VICTIM, "labels": labels}
            self.world.create({"apiVersion": "v1", "kind": "Pod", "metadata": pod, "spec": spec})

    def _bound(self, group: str) -> int:
        return sum(
            pod.holds and pod.document["metadata"]["labels"].get(names.POD_GROUP_LABEL) == group
            for pod in self.world.truth.pods.values()
            if pod.namespace == VICTIM
        )

    def _complain(self, name: str, cycles: int) -> None:
        engine, gang_id = self.world.scheduler.engine, GangId(f"{VICTIM}/{name}")
        gang, why = engine.gangs.get(gang_id), engine.refusals.get(gang_id)
        said = f"{gang.state.value if gang else 'unknown'}: {why.message if why else 'no reason'}"
        self.world.violations.append(
            f"gang {name} of {VICTIM} does not run within {cycles} cycles: {said}"
        )

    def leave(self) -> None:
        """Have every gang end."""
        world = self.world
        for pod in [pod for pod in world.truth.pods.values() if pod.namespace == VICTIM]:
            world.pod_goes(pod.uid)
        for uid in [uid for uid, one in world.objects.items() if namespace(one) == VICTIM]:
            world.delete(uid)
        world.settle()


def end(world: World, victim: Victim) -> None:
    """Have everybody leave, and see that nothing of them is left."""
    for uid in world.mine():
        if uid in world.truth.pods or uid in world.objects:
            world.delete(uid)
    victim.leave()
    for _ in range(3):
        world.plan()
    world.violations += verdict.left(world.scheduler.engine)
