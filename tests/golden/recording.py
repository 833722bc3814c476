"""Seeded histories with every kind of fact, from which golden journals are recorded.

Jobs of `simulator.virtual.job_run` come to queues that change, on nodes that fail; beside them come
gangs whose pods come first, late or by other names, that share GPUs or ask for MIG slices, and pods
of others. The scheduler is restarted twice.
"""

import random
from dataclasses import replace
from typing import IO

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import Engine
from gangsched.core.model.constraints import Constraints, LevelRequest, SliceRequest
from gangsched.core.model.gangs import Gang, Role
from gangsched.core.model.ids import GangId, NodeName, PodName, PodUid
from gangsched.core.model.mig_profiles import offers
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import GPU, GpuShare, PodRequirements, Taint, Toleration
from gangsched.core.model.queues import AdvanceReservation, GpuBudget, Queue, Stop
from gangsched.core.model.topology import Fabric, Level, Topology
from gangsched.core.planning.planner import make_plan
from gangsched.core.policy import Policies, PolicyError
from gangsched.recording.journal import Journal, RecordingEngine
from simulator.jobs import Job
from simulator.scenarios.histories import random_jobs, random_tree
from simulator.virtual.api_calls import ApiCallJobRun
from simulator.virtual.api_server import ApiServer

UNTIL_S = 420.0
_SLICE = "nvidia.com/mig-1g.5gb"
_RACKS = Topology(
    "default", (Level("zone", "zone"), Level("example.com/rack", "rack", Fabric.INFINIBAND))
)
_LAYOUTS = ((("1g.5gb", 7),), ())


def machine(index: int) -> Node:
    """Return a node with eight GPUs in a rack."""
    labels = {"zone": "z", "example.com/rack": f"r{index % 2}"}
    room = (("cpu", 64_000), ("memory", 2**39), (GPU, 8), ("pods", 110))
    model = ("NVIDIA-H100-80GB-HBM3", "NVIDIA-A100-SXM4-40GB")[index % 2]
    return Node(NodeName(f"n{index}"), room, labels, gpu_model=model, gpu_memory_mib=81_920)


def cut(node: Node, layouts: tuple[tuple[tuple[str, int], ...], ...]) -> Node:
    """Return a node whose GPUs are cut so."""
    room = {"cpu": 64_000, "memory": 2**39, "pods": 110}
    for layout in layouts:
        for name, count in offers(layout).items():
            room[name] = room.get(name, 0) + count
    return replace(node, allocatable=tuple(sorted(room.items())), layouts=layouts)


def asks(gpus: int, cpu: int = 1000, **more: object) -> PodRequirements:
    """Return what a pod asks."""
    amounts = {"cpu": cpu, GPU: gpus}
    return PodRequirements(tuple(sorted((k, v) for k, v in amounts.items() if v)), **more)  # type: ignore[arg-type]


class Recorded(ApiCallJobRun):
    """A history whose every fact, tick, look and plan goes to a file."""

    def __init__(
        self, seed: int, policies: Policies, file: IO[str], asks_s: float | None = None
    ) -> None:
        self._rng = rng = random.Random(seed)
        self._wild: dict[PodUid, f.PodSeen] = {}
        self._late: dict[GangId, int] = {}
        self._flies = False
        self._machines = [machine(index) for index in range(5)]
        self._machines.append(cut(machine(5), (_LAYOUTS[0], *[()] * 3)))
        queues = random_tree(rng, 44)
        budget = GpuBudget(4_000.0, 3_600.0, per_user=True)
        queues.append(Queue("spare", "org", budgets=(budget,), weight=2.0))
        self._queues = queues
        come = [self._asked(one) for one in random_jobs(rng, queues, 40)]
        come = [replace(job, asks_s=asks_s, save_s=4.0) for job in come] if asks_s else come
        booking = AdvanceReservation("upkeep", 150.0, 200.0, (NodeName("n4"),), evicts=True)

        def engine(limits):
            return RecordingEngine(Engine(limits, None), Journal(file))

        super().__init__(
            ApiServer(rng, 0.4, 0.06), self._machines, come, policies, queues,
            bookings=[booking], checked=False, engine=engine,
        )  # fmt: skip
        self.observe(f.TopologySeen(_RACKS))
        self._quotas()
        for at_s, happen in self._events():
            self.at(at_s, happen)

    def _asked(self, job: Job) -> Job:
        """Return a job that asks for more than GPUs, now and then."""
        near = self._rng.choice(
            (
                LevelRequest(),
                LevelRequest(),
                LevelRequest(preferred="rack"),
                LevelRequest(required="rack"),
                LevelRequest("zone"),
            )
        )
        if self._rng.random() < 0.3:
            near = LevelRequest(slices=(SliceRequest("rack", 1),)) if job.pods == 1 else near
        return replace(
            job, constraints=Constraints(near=near), min_runtime_s=self._rng.choice((0.0, 9.0))
        )

    def _events(self):
        at = self._rng.uniform
        first = {
            "first": lambda: self._first("pods", 3),
            "implicit": lambda: self._first("label", 2, implicit=True),
            "late": self._staged,
            "slices": self._slices,
            "elastic": self._elastic,
            "shared": self._shared,
            "stranger": self._stranger,
        }
        found = [(at(5, 330), happen) for happen in first.values() for _ in range(4)]
        found += [(at(20, 380), self._loses) for _ in range(3)]
        found += [(at(20, 380), self._drains) for _ in range(2)]
        found += [(at(20, 380), self._cannot) for _ in range(4)]
        found += [(at(20, 380), self._turns) for _ in range(6)]
        found += [(at(20, 380), self._deletes) for _ in range(3)]
        found += [(90.0, lambda: self.observe(f.AdvanceReservationSeen(self._booking(260.0))))]
        found += [(416.0, lambda: self.observe(f.AdvanceReservationSeen(self._booking(310.0))))]
        found += [(120.0, lambda: self.observe(f.AdvanceReservationGone("weekly")))]
        found += [(130.0, lambda: self.observe(f.AdvanceReservationSeen(self._booking(300.0))))]
        found += [(100.0, lambda: self.observe(f.TopologySeen(replace(_RACKS, name="other"))))]
        found += [(160.0, lambda: self.observe(f.TopologyGone("other")))]
        found += [(170.0, lambda: self.observe(f.QueueGone("spare")))]
        found += [(180.0, lambda: self.observe(f.QueueSeen(self._queues[-1])))]
        found += [(210.0, lambda: self.observe(f.NamespaceQuotaGone("ns", "compute")))]
        found += [(at(140, 190), self.restart), (at(270, 330), self.restart)]
        return found

    # -- what administrators do ---------------------------------------------------------------

    def _booking(self, start_s: float) -> AdvanceReservation:
        return AdvanceReservation(
            "weekly", start_s, start_s + 40.0, count=2, selector=(("zone", "z"),),
            queues=frozenset({"a"}), namespaces=frozenset({"wild"}), every_s=600.0,
        )  # fmt: skip

    def _quotas(self) -> None:
        left = (("requests.cpu", 30_000), (f"requests.{GPU}", 6))
        self.observe(f.NamespaceQuotaSeen("wild", "compute", left))
        self.observe(f.NamespaceQuotaSeen("ns", "compute", ((f"requests.{GPU}", 60),)))
        self.observe(f.BudgetsSeen(tuple(sorted(self._since_s))[:1]))

    def _turns(self) -> None:
        """Change a queue."""
        index = self._rng.randrange(1, len(self._queues) - 1)
        queue = self._queues[index]
        changes = (
            {"weight": queue.weight + 1.0},
            {"stop": Stop.DRAIN},
            {"stop": Stop.HOLD},
            {"stop": Stop.NONE, "strict": not queue.strict},
            {"user_limits": ((GPU, 6_000),)},
            {"max_runtime_s": 30.0},
            {"quotas": tuple(replace(one, nominal=one.nominal // 2) for one in queue.quotas)},
        )
        self._queues[index] = replace(queue, **self._rng.choice(changes))
        self.observe(f.QueueSeen(self._queues[index]))
        if self._queues[index].stop is not Stop.NONE:
            again = replace(self._queues[index], stop=Stop.NONE)
            self.at(self.now_s + 20.0, lambda: self.observe(f.QueueSeen(again)))
            self._queues[index] = again
        self._quotas()

    def restart(self) -> None:
        """Start the scheduler anew; quotas and budgets are read again too."""
        self._flies = False
        super().restart()
        self._quotas()

    # -- nodes --------------------------------------------------------------------------------

    def _loses(self) -> None:
        node = self._rng.choice(self._machines)
        if node.name in self.engine.view.cluster.rows:
            self.node_fails(node.name)
            for pod in [one for one in self._wild.values() if one.node == node.name]:
                self._leave(pod.uid)
            self.at(self.now_s + 25.0, lambda: self.node_returns(node))

    def _drains(self) -> None:
        node = self._rng.choice(self._machines[:5])
        if node.name in self.engine.view.cluster.rows:
            taint = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
            self.observe(f.NodeSeen(replace(node, unschedulable=True, taints=(taint,))))
            self.at(self.now_s + 30.0, lambda: self.node_returns(node))

    def _cut(self, order: o.RepartitionGpus) -> None:
        node = self._machines[5]
        if self._rng.random() < 0.3:
            self.observe(f.NodeSeen(replace(node, mig_failed=True)))
            self.at(self.now_s + 15.0, lambda: self.node_returns(self._machines[5]))
            return
        self._machines[5] = cut(node, order.layouts)
        self.observe(f.NodeSeen(self._machines[5]))

    # -- plans --------------------------------------------------------------------------------

    def _plan(self) -> None:
        """Plan at once, or have the plan land a moment later, on another state."""
        if self._flies:
            return
        try:
            if self._rng.random() > 0.2 or not self.engine.has_pending_work():
                super()._plan()
                return
            engine = self.engine
            plan = make_plan(engine.begin_cycle(now_s=self.now_s), self._policies, self.now_s)
        except PolicyError as error:  # as the scheduler does, which goes on without that gang
            self.observe(f.PlanFailed(error.gang, error.problem))
            return
        self._flies = True

        def land() -> None:
            if self.engine is engine:
                self._flies = False
                self._execute(engine.accept(plan, self.now_s))

        self.at(self.now_s + 0.3, land)

    # -- gangs of all sorts -------------------------------------------------------------------

    def _name(self, what: str) -> GangId:
        self._uids += 1
        return GangId(f"wild/{what}-{self._uids}")

    def _declare(self, gang: Gang) -> Gang:
        leaves = [one.name for one in self._queues if one.name in ("a", "a1", "b", "spare")]
        gang = replace(gang, queue=self._rng.choice(leaves), created_s=self.now_s)
        gang = replace(gang, user=self._rng.choice(("", "cid")), schedule_timeout_s=25.0)
        self.observe(f.GangSeen(gang))
        return gang

    def _first(self, what: str, count: int, *, implicit: bool = False) -> None:
        """Have the pods of a gang come one by one, gated ones among them."""
        gang = self._declare(Gang(self._name(what), count, implicit=implicit, priority=None))
        for index in range(count + (not implicit)):
            name = PodName(f"{gang.id}-{index}")
            more = {"rank": index, "gated": index == 0, "priority": 5, "created_s": self.now_s}
            self._wild_pod(name, asks(2), gang.id, "w", **more)

    def _staged(self) -> None:
        """Have a gang of which one pod is made only once the others run."""
        roles = (Role("launcher", 1, 1, asks(0), late=1), Role("worker", 2, 2, asks(2)))
        self._declare(Gang(self._name("late"), 3, roles))

    def _slices(self) -> None:
        needs = PodRequirements((("cpu", 500), (_SLICE, self._rng.choice((2, 7)))))
        roles = (Role("w", 2, 2, needs),)
        self._declare(Gang(self._name("mig"), 2, roles, priority=3, ready_timeout_s=6.0))

    def _elastic(self) -> None:
        most = self._rng.choice((4, 6))
        roles = (Role("w", most, 2, asks(2, tolerations=(Toleration("spot", "Exists", "", ""),))),)
        near = Constraints(near=LevelRequest(preferred="rack"), gpu_types=("H100", "A100"))
        more = {"movable": True, "max_runtime_s": 60.0, "expected_runtime_s": 40.0}
        self._declare(Gang(self._name("elastic"), 2, roles, constraints=near, **more))

    def _shared(self) -> None:
        needs = asks(0, share=GpuShare(milli=400))
        self._declare(Gang(self._name("shared"), 2, (Role("w", 2, 2, needs),), priority=1))

    def _stranger(self) -> None:
        """Have a pod of another scheduler take room, or one of ours that is not understood."""
        self._uids += 1
        name, node = PodName(f"other/p{self._uids}"), NodeName(f"n{self._uids % 3}")
        if self._uids % 2:
            self._wild_pod(name, asks(1, 4000), node=node, started_s=self.now_s)
        else:
            gang = GangId(f"other/pod:p{self._uids}")
            self._wild_pod(name, asks(1), gang, gated_by="example.com/gate", invalid="")

    def _deletes(self) -> None:
        """Have a group's owner delete it."""
        gangs = sorted({one.gang for one in self._wild.values() if one.gang})
        if gangs:
            self.observe(f.GangGone(self._rng.choice(gangs)))

    def _cannot(self) -> None:
        waits = sorted(self._waits)
        if waits:
            until_s = self._rng.choice((None, self.now_s + 20.0))
            self.observe(f.PlanFailed(waits[0], "a policy returned no Placement", until_s))

    # -- their pods ---------------------------------------------------------------------------

    def _wild_pod(self, name, needs, gang=None, role="", **more) -> None:
        self._uids += 1
        self._see(f.PodSeen(PodUid(f"w{self._uids}"), name, needs, gang, role, **more))

    def _see(self, pod: f.PodSeen) -> None:
        self._wild[pod.uid] = pod
        self.observe(pod)

    def _leave(self, uid: PodUid) -> None:
        pod = self._wild.pop(uid, None)
        if pod is None:
            return
        self.observe(f.PodGone(uid))
        name = str(pod.gang)
        if name.startswith("wild/pods") and not pod.ended and pod.gang in self.engine.view.gangs:
            self._wild_pod(pod.name, pod.needs, pod.gang, pod.role, rank=pod.rank)

    def _changed(self, uid: PodUid, **what) -> None:
        if uid in self._wild:
            self._see(replace(self._wild[uid], **what))

    def _execute(self, orders: tuple[o.Order, ...]) -> None:
        """Carry out orders about gangs of all sorts here, and of jobs as any load does."""
        for order in orders:
            if order.gang in self.outcomes and not isinstance(order, o.RepartitionGpus):
                super()._execute((order,))
                continue
            self._api.keep_order(order)
            if isinstance(order, o.Reserve):
                self._create_all(order)
            elif not isinstance(order, o.Report):
                self._call(lambda order=order: self._answer(order))

    def _create_all(self, order: o.Reserve) -> None:
        state = self.engine.view.gangs[order.gang]
        if not any(role.needs for role in state.spec.roles):
            return
        there = {one.name for one in self._wild.values()}
        for name, _ in order.assignments:
            member = state.members[name]
            if name in there:
                continue
            if member.late:
                self._late[order.gang] = self._late.get(order.gang, 0) + 1
                made = PodName(f"{order.gang}-launcher-by-job")
                needs, role = member.needs, member.role
                self.at(
                    self.now_s + 12.0,
                    lambda n=needs, r=role, p=made: self._wild_pod(p, n, order.gang, r),
                )
            else:
                self._call(lambda n=name, m=member: self._made(n, m, order.gang))

    def _made(self, name, member, gang: GangId) -> None:
        """Have the owner of a gang make a pod that was planned for."""
        self._wild_pod(name, member.needs, gang, member.role, gated=True, rank=0)

    def _answer(self, order: o.Order) -> None:
        uid = getattr(order, "uid", None)
        match order:
            case o.RepartitionGpus():
                self.at(self.now_s + 3.0, lambda: self._cut(order))
            case o.Evict() if uid in self._wild:
                self._changed(uid, terminating=True)
                self.at(self.now_s + 2.0, lambda: self._leave(uid))
            case o.Prepare() if uid in self._wild:
                self._changed(uid, gated=False)
                if self._api.fails():
                    self.observe(f.PrepareFailed(uid, order.node, "0/1 nodes are available.", 1))
                else:
                    self.observe(f.Prepared(uid, order.node))
            case o.Bind() if uid in self._wild:
                self._binds(order)
            case _:
                pass

    def _binds(self, order: o.Bind) -> None:
        uid = order.uid
        if self._api.fails() or order.node not in self.engine.view.cluster.rows:
            self.observe(f.BindFailed(uid, order.node, "the API server said no"))
            return
        self.observe(f.Bound(uid, order.node))
        more = {"devices": order.devices, "minimum": order.minimum, "node": order.node}
        self._changed(uid, ready=False, started_s=self.now_s, **more)
        at_s = self.now_s + self._rng.uniform(2, 9)
        self.at(at_s, lambda: self._changed(uid, ready=True))
        ends_s, fails = self.now_s + self._rng.uniform(15, 90), self._rng.random() < 0.1
        self.at(ends_s, lambda: self._changed(uid, ended=True, failed=fails, ready=False))
        self.at(ends_s + 30.0, lambda: self._leave(uid))


def record(
    seed: int,
    policies: Policies,
    file: IO[str],
    until_s: float = UNTIL_S,
    asks_s: float | None = None,
) -> Recorded:
    """Write the journal of a history to a file; its jobs ask for `asks_s` before they stop."""
    history = Recorded(seed, policies, file, asks_s)
    history.run(until_s)
    return history
