"""Creates, prepares and binds the pods of jobs by API calls; the scheduler may be restarted."""

from collections.abc import Callable
from typing import Any

from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.model.ids import GangId, NodeName, PodName
from simulator.virtual.api_server import ApiServer
from simulator.virtual.job_run import JobRun

_NO = "the API server said no"


class ApiCallJobRun(JobRun):
    """A run in which each call to the API server takes time, and some fail."""

    def __init__(self, api: ApiServer, *inputs: Any, **options: Any) -> None:
        self._api = api
        super().__init__(*inputs, **options)

    def observe(self, fact: f.Fact) -> None:
        """Store a fact for engines that start later, and give it to the engine."""
        self._api.keep(fact)
        super().observe(fact)

    def restart(self) -> None:
        """Restart the scheduler with nothing but what the API server stores."""
        self._api.epoch += 1
        before = self.engine
        listed = self._api.listed(before, self.now_s)
        self.engine = self._new_engine(before.limits)
        self.engine.history.merge_json(before.history.to_json())
        if self.checker is not None:
            self.checker.restarted(self.engine)
        for fact in listed:
            self._execute(self.engine.observe(fact, self.now_s))

    def _execute(self, orders: tuple[o.Order, ...]) -> None:
        for order in orders:
            self._api.keep_order(order)
        super()._execute(orders)

    def _make(self, gang: GangId, name: PodName, node: NodeName) -> None:
        self._call(lambda: self._create(gang, name))

    def _other(self, order: o.Order) -> None:
        match order:
            case o.Prepare():
                self._call(lambda: self._prepare(order))
            case o.Bind():
                self._call(lambda: self._try_bind(order))
            case _:
                pass

    def _call(self, effect: Callable[[], None]) -> None:
        """Schedule the effect of a call, which a restart of the scheduler cancels."""
        epoch = self._api.epoch
        self.at(
            self.now_s + self._api.delay_s(),
            lambda: effect() if self._api.epoch == epoch else None,
        )

    def _create(self, gang: GangId, name: PodName) -> None:
        state = self.engine.view.gangs.get(gang)
        member = state.members.get(name) if state is not None else None
        if name in self._pods.get(gang, {}) or member is None or member.assigned_node is None:
            return  # the pod exists, or its member has lost its assignment
        if self._api.fails():
            self._call(lambda: self._create(gang, name))
        else:
            self._pod(gang, name)

    def _prepare(self, order: o.Prepare) -> None:
        if self._pods.get(order.gang, {}).get(order.name) != order.uid:
            return
        if self._api.fails():
            self.observe(f.PrepareFailed(order.uid, order.node, _NO))
        else:
            self.observe(f.Prepared(order.uid, order.node))

    def _try_bind(self, order: o.Bind) -> None:
        if self._pods.get(order.gang, {}).get(order.name) != order.uid:
            return
        if self._api.fails() or order.node not in self.engine.view.cluster.rows:
            self.observe(f.BindFailed(order.uid, order.node, _NO))
        else:
            self._bind(order.gang, order.name, order.uid, order.node)
