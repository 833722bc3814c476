"""Which gangs lack nodes, and since when."""

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.view import EngineView
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.refusal import LACKS_NODES, Reason
from gangsched.core.planning.admission import charge_if_allowed
from gangsched.kube.provisioning.request import base_name, required_sets

_KEEPS = LACKS_NODES | {
    Reason.BACKING_OFF,
    Reason.BEHIND,
    Reason.BLOCKED,
    Reason.FREEING_CAPACITY,
    Reason.TOPOLOGY,
}
"""Refusals with which a gang keeps the request that it has. The nodes may be partly there."""

_HAS_NODES = (State.RESERVED, State.BINDING, State.BROKEN)
_LOOKED_AT = 4
"""Gangs without a request that a pass looks at, for each request that may exist, and of a namespace
for each that it may have: many gangs of one namespace do not hide those of others."""


@dataclass(frozen=True, slots=True)
class GangDemand:
    """A gang that may have a request, by the base of its name.

    Once the gang has nodes, `base` and `pending` are None: a request is kept until its pods run. A
    gang that does not `lack` nodes keeps its request, and gets no new one.
    """

    gang: GangId
    base: str | None = None
    pending: PendingGang | None = None
    lacks: bool = False


class GangDemands:
    """Follows since when gangs lack nodes."""

    def __init__(
        self, view: EngineView, after_s: float, requests_max: int, namespace_max: int
    ) -> None:
        self._view, self._after_s = view, after_s
        self._requests_max, self._namespace_max = requests_max, namespace_max
        self._lacks_since: dict[GangId, float] = {}
        self._excluded: dict[GangId, str] = {}
        self._paused: dict[GangId, tuple[int, float]] = {}
        """Gangs with their versions, and until when they are not looked at."""

    def exclude(self, gang: GangId, base: str) -> None:
        """Leave a gang out until it changes: no request can describe it."""
        self._excluded[gang] = base
        self.pause(gang, math.inf)

    def pause(self, gang: GangId, until_s: float) -> None:
        """Count a gang as not lacking nodes until a time, or until it changes."""
        state = self._view.gangs.get(gang)
        if state is not None:
            self._paused[gang] = state.version, until_s

    def wants(self, requested: AbstractSet[GangId], now_s: float) -> list[GangDemand]:
        """Return the gangs that may have a request, the highest priority first, then the oldest.

        `requested` have one. Of the others only so many are looked at as may get one soon.
        """
        gangs, lacking = self._view.gangs, {}
        for gang, refusal in self._view.refusals.items():
            if refusal.reason in LACKS_NODES and gang in gangs:
                lacking[gang] = self._lacks_since.get(gang, now_s)
        self._lacks_since = lacking
        self._excluded = {gang: at for gang, at in self._excluded.items() if gang in gangs}
        self._paused = {
            gang: (version, until_s)
            for gang, (version, until_s) in self._paused.items()
            if gang in gangs and gangs[gang].version == version and now_s < until_s
        }
        due = {gang for gang, at_s in lacking.items() if now_s - at_s >= self._after_s}
        due -= self._paused.keys()

        def turn(gang: GangId) -> tuple[int, float, GangId]:
            return -gangs[gang].priority(), gangs[gang].waits_since_s(), gang

        by_namespace: dict[str, list[GangId]] = {}
        for gang in due - requested:
            by_namespace.setdefault(gang.partition("/")[0], []).append(gang)
        of_each = (
            heapq.nsmallest(_LOOKED_AT * self._namespace_max, found, key=turn)
            for found in by_namespace.values()
        )
        first = itertools.chain.from_iterable(of_each)
        some = heapq.nsmallest(_LOOKED_AT * self._requests_max, first, key=turn)
        known = [gang for gang in requested if gang in gangs]
        wants = (self._want(gang, lacks=gang in due) for gang in sorted([*some, *known], key=turn))
        return [want for want in wants if want is not None]

    def may_buy(
        self, demands: Sequence[GangDemand], served: AbstractSet[GangId], coming: Iterable[GangId]
    ) -> list[GangDemand]:
        """Return the gangs that nodes may be bought for: their queues have quota for them.

        `served` gangs have nodes or get some, and are charged first; those of `coming` count for
        the limits of the settings.
        """
        live = Counter(gang.partition("/")[0] for gang in coming)
        usage, types = self._view.ledger.usage.copy(), self._view.ledger.gpu_types
        found = []
        for want in sorted(demands, key=lambda want: want.gang not in served):
            if want.pending is None or not charge_if_allowed(want.pending, usage, types):
                continue
            namespace = want.gang.partition("/")[0]
            full = live[namespace] >= self._namespace_max or live.total() >= self._requests_max
            if want.lacks and not full and want.gang not in served:
                found.append(want)
        return found

    def _want(self, gang: GangId, *, lacks: bool) -> GangDemand | None:
        state = self._view.gangs[gang]
        if state.spec is None or state.undeclared:
            return None
        if state.state in _HAS_NODES:
            return GangDemand(gang)
        refusal = self._view.refusals.get(gang)
        if state.state is not State.PENDING or (refusal and refusal.reason not in _KEEPS):
            return None
        if not state.is_plannable():  # in back-off
            return GangDemand(gang)
        pending = self._view.pending(gang)
        base = base_name(gang, state.waits_since_s(), required_sets(pending))
        if self._excluded.get(gang) == base:
            self.exclude(gang, base)  # it changed in nothing that a request says
            return None
        return GangDemand(gang, base, pending, lacks)
