"""Claims that wait for the first consumer: those of a gang are bound together, or none is."""

import asyncio
import json

import pytest
from builders import POLICIES, node, plan
from waiting import until_async

from gangsched.config import SchedulerConfig
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.gangs.member import State
from gangsched.kube.actuation.pod_binding import DirectBinder
from gangsched.kube.client.errors import Conflict, NotFound
from gangsched.kube.informers.volumes import watched
from gangsched.kube.service import Scheduler
from gangsched.kube.volumes.binding import VolumeBinder
from gangsched.kube.volumes.eligible_nodes import Volumes
from gangsched.kube.volumes.storage_objects import BOUND_BY_CONTROLLER, SELECTED_NODE
from gangsched.metrics import Metrics

PVC, PV = "PersistentVolumeClaim", "PersistentVolume"
FOLDERS = {"persistentvolumeclaims": PVC, "persistentvolumes": PV}


class World:
    """An API server with its watches, and a controller of volumes that does what it is told."""

    def __init__(self) -> None:
        volumes = Volumes()
        self.scheduler = scheduler = Scheduler(
            self,
            SchedulerConfig(),
            POLICIES,
            Metrics(),
            make_binder=lambda context: DirectBinder(context, VolumeBinder(context, volumes, self)),
            volumes=volumes,
        )
        scheduler.ready.set()
        self.binder = scheduler.binder._check
        found = watched(scheduler.volumes, scheduler.metrics)
        self.there = {kind: one for kind, (_, one, _) in found.items()}
        self.there |= {"Pod": scheduler.informers.pods, "PodGroup": scheduler.informers.pod_groups}
        self.objects: dict[tuple[str, str], dict] = {}
        self.version = 0
        self.answers = True
        self.bound: dict[str, str] = {}
        self.reports: list[str] = []
        self._execute, scheduler.driver.execute = scheduler.driver.execute, self._orders

    def _orders(self, orders) -> None:
        self.reports += [one.message for one in orders if isinstance(one, o.Report)]
        silent = (o.Report, o.Reserve, o.Release)
        self._execute(tuple(one for one in orders if not isinstance(one, silent)))

    # -- the API ------------------------------------------------------------------------------

    async def get(self, path: str) -> bytes:
        return json.dumps(self._found(path)).encode()

    async def patch(self, path: str, body: dict) -> bytes:
        found, metadata = self._found(path), body["metadata"]
        old = found["metadata"]
        if (metadata["uid"], metadata["resourceVersion"]) != (old["uid"], old["resourceVersion"]):
            raise Conflict(409, "the object has been modified")
        notes = {**old.get("annotations", {}), **metadata["annotations"]}
        old["annotations"] = {key: value for key, value in notes.items() if value is not None}
        found["spec"] |= body.get("spec", {})
        self.put(PVC if "claims/" in path else PV, found)
        if self.answers:
            self.control()
        return json.dumps(found).encode()

    async def request(self, _, path: str, *, body: dict, tries: int) -> bytes:
        del path, tries
        self.bound[body["metadata"]["name"]] = body["target"]["name"]
        return b"{}"

    def _found(self, path: str) -> dict:
        folder, name = path.split("/")[-2:]
        if (FOLDERS[folder], name) not in self.objects:
            raise NotFound(404, name)
        return self.objects[FOLDERS[folder], name]

    # -- the cluster --------------------------------------------------------------------------

    def put(self, kind: str, body: dict) -> None:
        """Store an object, and tell of it."""
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.objects[kind, body["metadata"]["name"]] = body
        self.there[kind].on_update(json.dumps(body).encode())

    def control(self) -> None:
        """Bind volumes to the claims that they are kept for, and make those that are asked for."""
        kept = {
            one["spec"]["claimRef"]["name"]: name
            for (kind, name), one in self.objects.items()
            if kind == PV and "claimRef" in one["spec"]
        }
        claims = [one for (kind, _), one in self.objects.items() if kind == PVC]
        for claim in claims:
            name = claim["metadata"]["name"]
            chosen = claim["metadata"].get("annotations", {}).get(SELECTED_NODE)
            of = claim["spec"]["storageClassName"]
            if claim["spec"].get("volumeName") or not (name in kept or (chosen and of == "good")):
                continue
            made = kept.get(name) or f"made-{name}"
            # The claim is told of first: the volume is not known yet.
            claim["spec"]["volumeName"], claim["status"] = made, {"phase": "Bound"}
            self.put(PVC, claim)
            if name not in kept:
                self.volume(made, chosen, "good", owner=claim["metadata"])

    def nodes(self, *names: str) -> None:
        for name in names:
            seen = f.NodeSeen(node(name, labels={"host": name}))
            self.scheduler.driver.observe(seen)

    def storage_class(self, name: str, provisioner: str = "made.example/fast", **more) -> None:
        mode = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": provisioner}
        self.put("StorageClass", {"metadata": {"name": name, "uid": name}, **mode, **more})

    def claim(self, name: str, of: str = "good", *modes: str, size: str = "1Gi", **spec) -> None:
        owners = [{"uid": spec.pop("owner", ""), "controller": True}]
        asked = {
            "storageClassName": of,
            "accessModes": list(modes or ("ReadWriteOnce",)),
            "resources": {"requests": {"storage": size}},
            **spec,
        }
        uid = f"uid-{name}"
        metadata = {"name": name, "namespace": "ns", "uid": uid, "ownerReferences": owners}
        self.put(PVC, {"metadata": metadata, "spec": asked, "status": {"phase": "Pending"}})

    def volume(self, name: str, on: str, of: str, size: str = "1Gi", **more) -> None:
        owner = more.pop("owner", None)
        where = {"key": "host", "operator": "In", "values": [on]}
        spec = {
            "storageClassName": of,
            "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"],
            "capacity": {"storage": size},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [where]}]}},
        }
        if owner:
            keys = ("namespace", "name", "uid")
            spec["claimRef"] = {key: owner[key] for key in keys}
        phase = {"phase": "Bound" if owner else "Available"}
        self.put(PV, {"metadata": {"name": name, "uid": name}, "spec": spec, "status": phase})

    def gang(self, *pods: dict) -> None:
        """Create a gang `g` of pods, each with one volume."""
        self.group(len(pods))
        for index, volume in enumerate(pods):
            self.pod(f"p{index}", volume)

    def group(self, minimum: int) -> None:
        """Put the group `g`, whose time is up only where a test says so."""
        metadata = {"name": "g", "namespace": "ns", "uid": "group"}
        spec = {"minMember": minimum, "scheduleTimeoutSeconds": 3600}
        self.put("PodGroup", {"metadata": metadata, "spec": spec})

    def pod(self, name: str, volume: dict, group: str = "g", **spec) -> None:
        labels = {"gangsched.io/pod-group": group}
        metadata = {"name": name, "namespace": "ns", "uid": f"pod-{name}", "labels": labels}
        volumes = [{"name": "data", **volume}] if volume else []
        body = {"schedulerName": "gangsched", "volumes": volumes, **spec}
        self.put("Pod", {"metadata": metadata, "spec": body})

    # -- what comes of it ---------------------------------------------------------------------

    def plan(self) -> None:
        scheduler = self.scheduler
        scheduler.driver.execute(plan(scheduler.engine, scheduler.now_s()))

    async def settled(self) -> None:
        """Wait until nothing is done any more but waiting."""
        for _ in range(200):
            await asyncio.sleep(0)

    @property
    def state(self) -> State:
        return self.scheduler.engine.view.gangs["ns/g"].state

    def chosen(self, claim: str) -> str | None:
        return self.objects[PVC, claim]["metadata"].get("annotations", {}).get(SELECTED_NODE)

    def beyond(self, pod: str = "p0") -> tuple[str, ...]:
        return self.scheduler.engine.view.pod(f"pod-{pod}").needs.unmodelled_constraints

    def late(self) -> None:
        """Let the time be up that the gang has."""
        (one,) = self.binder._passes.values()
        one.limit.reschedule(asyncio.get_running_loop().time())


def of(claim: str) -> dict:
    return {"persistentVolumeClaim": {"claimName": claim}}


@pytest.fixture
async def world():
    made = World()
    made.nodes("n1", "n2")
    made.storage_class("good")
    made.storage_class("silent", "nobody.example/silent")
    made.storage_class("hand", "kubernetes.io/no-provisioner")
    yield made
    assert not made.scheduler.volumes.dropped
    assert made.scheduler.pods._fatal.empty()


async def bound(world) -> dict[str, str]:
    await until_async(lambda: world.bound, "pods to be bound", shown=lambda: str(world.reports))
    await world.settled()
    return world.bound


async def broken(world) -> str:
    """Wait until the gang is broken; return why."""
    await until_async(lambda: any("stopped" in one for one in world.reports), "the gang to break")
    await world.settled()
    assert not world.bound
    return next(one for one in world.reports if "stopped" in one)


async def test_volumes_are_made_for_the_nodes_of_a_gang(world):
    world.claim("a")
    world.claim("b")
    world.gang(of("a"), of("b"), {})
    world.plan()
    nodes = await bound(world)
    assert nodes.keys() == {"p0", "p1", "p2"}
    assert (world.chosen("a"), world.chosen("b")) == (nodes["p0"], nodes["p1"])
    volumes = world.scheduler.volumes
    left = (volumes.going, volumes.assumed, world.binder._held, world.binder._gangs)
    assert left == ({}, {}, {}, {})


async def test_nothing_is_asked_for_before_all_of_the_gang_are_at_the_barrier(world):
    world.claim("a")
    gates = [{"name": "gangsched.io/gang"}]
    world.gang(of("a"))
    world.group(2)
    world.pod("late", {}, schedulingGates=gates)
    ungated = asyncio.get_running_loop().create_future()
    world.scheduler.pods.ungate = lambda _: ungated
    world.plan()
    await world.settled()
    assert (world.state, world.chosen("a"), world.bound) == (State.RESERVED, None, {})
    ungated.set_result(True)
    assert (await bound(world)).keys() == {"p0", "late"}


async def test_a_volume_that_exists_takes_its_pod_to_its_node(world):
    world.volume("small", "n1", "hand", "1Gi")
    world.volume("large", "n2", "hand", "9Gi")
    world.claim("a", "hand", size="5Gi")
    world.gang(of("a"))
    world.plan()
    assert await bound(world) == {"p0": "n2"}
    kept = world.objects[PV, "large"]
    reference = kept["spec"]["claimRef"]
    assert (reference["name"], reference["uid"], reference["kind"]) == ("a", "uid-a", PVC)
    assert kept["metadata"]["annotations"] == {BOUND_BY_CONTROLLER: "yes"}
    assert world.chosen("a") is None


async def test_two_of_a_gang_never_take_one_volume(world):
    """Both fit on a node that has one volume: one a node is tried next."""
    world.volume("v1", "n1", "hand")
    world.volume("v2", "n2", "hand")
    for name in ("a", "b"):
        world.claim(name, "hand")
    world.gang(of("a"), of("b"))
    world.plan()
    assert "no PersistentVolume of StorageClass hand is available for it" in await broken(world)
    gang = world.scheduler.engine.view.gangs["ns/g"]
    assert (gang.retry.pods_per_node_max, gang.retry.excluded_nodes) == (1, {})
    gang.retry.backoff_until_s = None
    world.scheduler.engine.parts.lifecycle.settle(gang, world.scheduler.now_s())
    world.plan()
    assert sorted((await bound(world)).values()) == ["n1", "n2"]


async def test_the_volumes_of_a_node_go_round_as_far_as_they_can(world):
    """The smaller claim could take the only volume that suits the larger."""
    world.volume("v1", "n1", "hand", "5Gi")
    world.volume("v2", "n1", "hand", "5Gi")
    world.objects[PV, "v1"]["metadata"]["labels"] = {"disk": "fast"}
    world.put(PV, world.objects[PV, "v1"])
    world.claim("a", "hand", size="1Gi")
    world.claim("b", "hand", size="2Gi", selector={"matchLabels": {"disk": "fast"}})
    world.gang(of("a"), of("b"))
    world.plan()
    assert await bound(world) == {"p0": "n1", "p1": "n1"}
    assert world.objects[PVC, "b"]["spec"]["volumeName"] == "v1"


async def test_an_unanswered_claim_starts_no_gang_and_leaves_nothing(world):
    world.answers = False
    world.claim("a")
    world.claim("b", "silent")
    world.gang(of("a"), of("b"))
    world.plan()
    await until_async(lambda: world.chosen("b"), "the node to be chosen")
    world.control()
    await world.settled()
    node = world.chosen("b")
    assert world.state is State.RESERVED
    world.late()
    why = await broken(world)
    assert f"{node} refused pod ns/p1: PersistentVolumeClaim b was not bound by nobody" in why
    assert world.chosen("b") is None
    assert world.chosen("a") == node, "its volume was made: that stays"
    assert world.scheduler.engine.view.gangs["ns/g"].retry.excluded_nodes.keys() == {node}


async def test_a_provisioner_may_refuse(world):
    world.answers = False
    world.claim("a", "silent")
    world.claim("b", "silent")
    world.gang(of("a"), of("b"))
    world.plan()
    await until_async(lambda: world.chosen("b"), "the node to be chosen")
    metadata = world.objects[PVC, "b"]["metadata"]
    node = metadata["annotations"].pop(SELECTED_NODE)
    world.put(PVC, world.objects[PVC, "b"])
    assert "no volume can be made for PersistentVolumeClaim b by nobody" in await broken(world)
    assert world.chosen("a") is None
    assert world.scheduler.engine.view.gangs["ns/g"].retry.excluded_nodes.keys() == {node}


async def test_a_provisioner_may_refuse_before_the_choice_is_answered(world):
    """The node is not chosen again: the watch was quicker than the answer."""

    def refuse() -> None:
        claim = world.objects[PVC, "b"]
        if claim["metadata"].get("annotations", {}).pop(SELECTED_NODE, None):
            world.put(PVC, claim)

    world.control = refuse
    world.claim("a", "silent")
    world.claim("b", "silent")
    world.gang(of("a"), of("b"))
    world.plan()
    assert "no volume can be made for PersistentVolumeClaim b by nobody" in await broken(world)


async def test_a_pod_that_goes_takes_the_choice_of_its_gang_back(world):
    world.answers = False
    world.claim("a")
    world.claim("b")
    world.gang(of("a"), of("b"))
    world.plan()
    await until_async(lambda: world.chosen("b"), "the node to be chosen")
    world.there["Pod"].on_delete("pod-p1", None)
    await broken(world)
    assert (world.chosen("a"), world.chosen("b")) == (None, None)


async def test_another_change_of_a_claim_is_no_failure(world):
    """The claim was changed, and the watch is late."""
    world.claim("a")
    world.gang(of("a"))
    world.version += 1
    world.objects[PVC, "a"]["metadata"]["resourceVersion"] = str(world.version)
    world.plan()
    assert (await bound(world)).keys() == {"p0"}


async def test_an_older_version_of_a_claim_is_ignored(world):
    world.claim("a", "silent")
    before = json.dumps(world.objects[PVC, "a"]).encode()
    world.gang(of("a"))
    world.plan()
    await until_async(lambda: world.chosen("a"), "the node to be chosen")
    world.there[PVC].on_update(before)
    await world.settled()
    assert world.state is State.RESERVED


async def test_a_claim_for_one_pod_alone_waits_until_that_pod_is_gone(world):
    world.claim("a", "good", "ReadWriteOncePod")
    world.pod("first", of("a"), group="other", nodeName="n1")
    world.gang(of("a"))
    assert world.beyond() == (f"{PVC} a (pod ns/first has it, and it is for one pod alone)",)
    world.plan()
    (report,) = (one for one in world.reports if "wait" in one)
    assert report.startswith(f"pod ns/p0 has to wait for {PVC} a (pod ns/first has it")
    world.there["Pod"].on_delete("pod-first", None)
    assert not world.beyond()
    world.plan()
    assert (await bound(world)).keys() == {"p0"}


async def test_two_of_a_gang_never_have_a_claim_for_one_pod_alone(world):
    world.claim("a", "good", "ReadWriteOncePod")
    world.gang(of("a"), of("a"))
    world.plan()
    assert "has PersistentVolumeClaim a, which is for one pod" in await broken(world)
    assert not world.scheduler.volumes.alone


EPHEMERAL = {
    "ephemeral": {
        "volumeClaimTemplate": {
            "spec": {
                "storageClassName": "good",
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
            }
        }
    }
}


async def test_the_claim_of_an_ephemeral_volume_is_waited_for(world):
    world.gang(EPHEMERAL)
    assert not world.beyond()
    world.plan()
    await world.settled()
    assert world.state is State.RESERVED
    world.claim("p0-data", owner="pod-p0")
    nodes = await bound(world)
    assert world.chosen("p0-data") == nodes["p0"]


async def test_a_claim_that_happens_to_have_the_name_is_not_taken(world):
    world.claim("p0-data")
    world.gang(EPHEMERAL)
    why = "there is a claim p0-data that is not the pod's own"
    assert world.beyond() == (f"ephemeral volume data ({why})",)


async def test_an_immediate_claim_is_waited_for_and_named(world):
    world.storage_class("now", volumeBindingMode="Immediate")
    world.claim("a", "now")
    world.gang(of("a"))
    world.plan()
    assert f"pod ns/p0 has to wait for {PVC} a (it is not bound)." in world.reports
    world.volume("v", "n2", "now", owner=world.objects[PVC, "a"]["metadata"])
    world.control()
    world.plan()
    assert await bound(world) == {"p0": "n2"}


async def test_a_shared_claim_is_made_for_one_of_the_nodes(world):
    """A volume of any node: all pods of the gang reach it."""
    world.claim("a", "good", "ReadWriteMany")
    world.gang(of("a"), of("a"))
    world.plan()
    nodes = await bound(world)
    assert nodes.keys() == {"p0", "p1"}
    assert world.chosen("a") in nodes.values()


async def test_who_led_before_may_have_chosen_the_node(world):
    world.answers = False
    world.claim("a", "good")
    world.objects[PVC, "a"]["metadata"]["annotations"] = {SELECTED_NODE: "n2"}
    world.put(PVC, world.objects[PVC, "a"])
    world.gang(of("a"))
    world.plan()
    await world.settled()
    world.control()
    assert await bound(world) == {"p0": "n2"}


async def test_storage_that_a_driver_has_decides_where_a_volume_is_made(world):
    driver = {"metadata": {"name": "made.example/fast", "uid": "d"}}
    capacity = {
        "metadata": {"name": "room", "namespace": "kube-system", "uid": "room"},
        "storageClassName": "good",
        "capacity": "2Gi",
        "nodeTopology": {"matchLabels": {"host": "n2"}},
    }
    world.put("CSIDriver", {**driver, "spec": {"storageCapacity": True}})
    world.claim("a")
    world.gang(of("a"))
    assert world.beyond() == (
        f"{PVC} a (no node has capacity for its volume, of StorageClass good)",
    )
    world.put("CSIStorageCapacity", capacity)
    world.plan()
    assert await bound(world) == {"p0": "n2"}


async def test_a_claim_is_answered_again_when_its_class_or_a_volume_comes(world):
    world.claim("a", "later")
    world.gang(of("a"))
    why = "it is not bound, and there is no StorageClass later"
    assert world.beyond() == (f"{PVC} a ({why})",)
    world.storage_class("later", "kubernetes.io/no-provisioner")
    why = "no PersistentVolume of StorageClass later is available for it"
    assert world.beyond() == (f"{PVC} a ({why})",)
    world.volume("v", "n1", "later")
    assert not world.beyond()
    world.there[PV].on_delete("v", None)
    assert world.beyond() == (f"{PVC} a ({why})",)
    for kind, uid in (("StorageClass", "later"), (PVC, "uid-a")):
        world.there[kind].on_delete(uid, None)
    assert world.beyond() == (f"{PVC} a (there is no such claim)",)


async def test_a_volume_assigned_to_a_gang_is_offered_to_no_other(world):
    world.volume("v1", "n1", "hand")
    world.claim("a", "hand")
    world.claim("b", "silent")
    world.claim("c", "hand")
    world.gang(of("a"), of("b"))
    world.pod("other", of("c"), group="other")
    assert not world.beyond("other")
    world.plan()
    await until_async(lambda: world.chosen("b"), "the node to be chosen")
    why = "no PersistentVolume of StorageClass hand is available for it"
    assert world.beyond("other") == (f"{PVC} c ({why})",)
    world.late()
    await broken(world)
    assert not world.beyond("other")
