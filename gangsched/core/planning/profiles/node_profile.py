"""The cluster now and at the start of each backfill reservation.

Between these moments capacity only comes free, so that a gang that fits now and at each of them
fits all the time. A view has, for each node, the most that is used now and at the start of any
reservation that a gang would outlive. A gang placed on that view delays none of them, whatever
their topology. (EASY: Lifka, JSSPP'95, one reservation; conservative backfill: Mu'alem and
Feitelson, TPDS 2001, one for every gang.)
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter

import numpy as np

from gangsched.core.cluster.node_table import Ints
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.ids import GangId, NodeName, PodName
from gangsched.core.model.pods import PodRequirements
from gangsched.core.model.queues import AdvanceReservation
from gangsched.core.snapshot import BackfillReservation, RunningGang

PodSlots = tuple[tuple[NodeName, PodRequirements], ...]
"""Nodes, and what one pod requests there."""


@dataclass(frozen=True, slots=True)
class Occupancy:
    """The pod slots that are used from one moment until another."""

    start_s: float
    end_s: float
    slots: PodSlots


def slots_of(running: RunningGang) -> PodSlots:
    """Return the nodes of a running gang's pods, and what each pod requests there."""
    return tuple((place.node, place.needs) for place in running.places)


@dataclass(frozen=True, slots=True)
class ReservedWindow:
    """Rows that an advance reservation sets aside from one moment until another."""

    reservation: AdvanceReservation
    start_s: float
    end_s: float
    rows: Ints


@dataclass(frozen=True, slots=True)
class _Moment:
    """The usage of all nodes at the start of a backfill reservation."""

    at_s: float
    used: Ints


@dataclass(frozen=True, slots=True)
class _View:
    """The cluster with the usage of the first `count` moments and of some advance reservations."""

    count: int
    windows: tuple[ReservedWindow, ...]
    cluster: Cluster


class ReleaseSchedule:
    """The running gangs by their expected ends; listed only when it is needed."""

    def __init__(self, find: Callable[[], Iterable[tuple[float, RunningGang]]]) -> None:
        self._find = find
        # Pod slots of the first gangs to end, as far as needed; `_counts`: slots up to each gang.
        self._rows: list[int] = []
        self._classes: list[int] = []
        self._counts = [0]
        self._class_of: dict[PodRequirements, int] = {}
        self._vectors: list[Ints] = []

    @cached_property
    def _ranked(self) -> list[tuple[float, RunningGang]]:
        return sorted(self._find(), key=itemgetter(0))

    @cached_property
    def ends_s(self) -> list[float]:
        """Return the expected ends in time order."""
        return [end_s for end_s, _ in self._ranked]

    def released_by(self, at_s: float, cluster: Cluster) -> tuple[Ints, Ints]:
        """Return rows, and what has come free there, shapes (n,) and (n, resources)."""
        ended = bisect_right(self.ends_s, at_s)
        for _, running in self._ranked[len(self._counts) - 1 : ended]:
            self._list_slots(running, cluster)
        count = self._counts[ended]
        width = len(cluster.resources)
        amounts = np.array(self._vectors, dtype=np.int64).reshape(len(self._vectors), width)
        rows = np.array(self._rows[:count], dtype=np.int64)
        return rows, amounts[np.array(self._classes[:count], dtype=np.int64)]

    def _list_slots(self, running: RunningGang, cluster: Cluster) -> None:
        for place in running.places:
            row = cluster.rows.get(place.node)
            if row is None:
                continue
            kind = self._class_of.get(place.needs)
            if kind is None:
                kind = self._class_of[place.needs] = len(self._vectors)
                self._vectors.append(cluster.whole_unit_requests(place.needs, -1))
            self._rows.append(row)
            self._classes.append(kind)
        self._counts.append(len(self._rows))

    def __iter__(self) -> Iterator[tuple[float, RunningGang]]:
        return iter(self._ranked)


class AvailabilityProfile:
    """The usage at the start of each reservation, and the views for gangs that start now."""

    def __init__(
        self,
        cluster: Cluster,
        running: ReleaseSchedule,
        now_s: float,
        bookings: Iterable[AdvanceReservation] = (),
    ) -> None:
        self.now_s = now_s
        self.reservations: list[BackfillReservation] = []
        self._reserved: dict[GangId, Occupancy] = {}
        self._cluster = cluster
        self._running = running
        self._started: list[Occupancy] = []
        self._moments: list[_Moment] = []
        self._views: dict[tuple[int, tuple[str, ...]], _View] = {}
        self.windows = tuple(_open_windows(cluster, bookings, now_s))

    # -- changes ----------------------------------------------------------------------

    def started(self, stay: Occupancy) -> None:
        """Count a gang that starts now; the present cluster was charged already."""
        self._started.append(stay)
        self._count_start(stay, 1)

    def undo_start(self, stay: Occupancy) -> None:
        """Undo `started` for the last gang that started; the present cluster is as before it."""
        assert self._started.pop() == stay, "starts are undone last first"  # noqa: S101
        self._count_start(stay, -1)

    def _count_start(self, stay: Occupancy, sign: int) -> None:
        for moment in self._moments:
            if moment.at_s < stay.end_s:
                self._add(moment.used, stay.slots, sign)
        rows = {self._cluster.rows[node] for node, _ in stay.slots if node in self._cluster.rows}
        touched = sorted(rows)
        for view in self._views.values():
            view.cluster.mirror(self._cluster, touched, self._most_used(view, touched))

    def release(self, gang: GangId) -> None:
        """Release the reservation of a gang; another may be made for it."""
        self.reservations = [kept for kept in self.reservations if kept.gang != gang]
        stay = self._reserved.pop(gang, None)
        if stay is None:
            return
        for moment in self._moments:
            if stay.start_s <= moment.at_s < stay.end_s:
                self._add(moment.used, stay.slots, -1)
        self._views.clear()

    def has_reservation(self, gang: GangId) -> bool:
        """Return whether a gang has a backfill reservation."""
        return gang in self._reserved

    def is_free(self, stay: Occupancy) -> bool:
        """Return whether nodes are free for an occupancy that begins later."""
        if any(node not in self._cluster.rows for node, _ in stay.slots):
            return False
        used = self._used_at(stay.start_s)
        for moment in self._moments:
            if stay.start_s < moment.at_s < stay.end_s:
                np.maximum(used, moment.used, out=used)
        self._add(used, stay.slots, 1)
        rows = [self._cluster.rows[node] for node, _ in stay.slots]
        return not bool((used[rows] > self._cluster.allocatable[rows]).any())

    def reserve(
        self, gang: GangId, stay: Occupancy, nodes: tuple[tuple[PodName, NodeName], ...]
    ) -> None:
        """Reserve nodes for a gang from a moment on."""
        if all(moment.at_s != stay.start_s for moment in self._moments):
            self._moments.append(_Moment(stay.start_s, self._used_at(stay.start_s)))
            self._moments.sort(key=lambda moment: moment.at_s)
        self._reserved[gang] = stay
        for moment in self._moments:
            if stay.start_s <= moment.at_s < stay.end_s:
                self._add(moment.used, stay.slots, 1)
        self._views.clear()
        self.reservations.append(BackfillReservation(gang, stay.start_s, nodes))

    def _add(self, used: Ints, seats: PodSlots, sign: int) -> None:
        for node, needs in seats:
            row = self._cluster.rows.get(node)
            if row is not None:
                used[row] += sign * self._cluster.whole_unit_requests(needs, sign)

    # -- questions ----------------------------------------------------------------------------

    def view(self, namespace: str, queue: str, end_s: float) -> Cluster:
        """Return the view for a gang that starts now and ends at `end_s`."""
        count = sum(1 for moment in self._moments if moment.at_s < end_s)
        closed = self._windows_of_others(namespace, queue, self.now_s, end_s)
        if not count and not closed:
            return self._cluster
        key = count, tuple(window.reservation.name for window in closed)
        if key not in self._views:
            view = _View(count, closed, self._cluster.with_used(self._cluster.used))
            view.cluster.used = self._most_used(view, list(range(len(self._cluster.names))))
            self._views[key] = view
        return self._views[key].cluster

    def view_at(self, namespace: str, queue: str, start_s: float, end_s: float) -> Cluster:
        """Return the view for a gang that starts at `start_s` and ends at `end_s`."""
        used = self._used_at(start_s)
        for moment in self._moments:
            if start_s < moment.at_s < end_s:
                np.maximum(used, moment.used, out=used)
        for window in self._windows_of_others(namespace, queue, start_s, end_s):
            used[window.rows] = np.maximum(
                used[window.rows], self._cluster.allocatable[window.rows]
            )
        return self._cluster.with_used(used)

    def release_times_s(self) -> list[float]:
        """Return the moments at which capacity comes free."""
        stays = [*self._started, *self._reserved.values()]
        ends = {stay.end_s for stay in stays} | {window.end_s for window in self.windows}
        ends.update(self._running.ends_s)
        return sorted(end_s for end_s in ends if self.now_s < end_s < float("inf"))

    def would_delay(self, stay: Occupancy, gone: Iterable[Occupancy]) -> bool:
        """Return whether a gang that starts now delays a reservation, once `gone` has ended."""
        gone = tuple(gone)
        for moment in self._moments:
            if moment.at_s >= stay.end_s:
                continue
            used = moment.used.copy()
            self._add(used, stay.slots, 1)
            for other in gone:
                if other.end_s > moment.at_s:
                    self._add(used, other.slots, -1)
            rows = [self._cluster.rows[node] for node, _ in stay.slots]
            if (used[rows] > self._cluster.allocatable[rows]).any():
                return True
        return False

    def advance_reservations_until(
        self, namespace: str, queue: str, end_s: float
    ) -> tuple[AdvanceReservation, ...]:
        """Return the advance reservations with nodes that a gang may not use until `end_s`."""
        return tuple(
            window.reservation
            for window in self._windows_of_others(namespace, queue, self.now_s, end_s)
        )

    def _windows_of_others(
        self, namespace: str, queue: str, start_s: float, end_s: float
    ) -> tuple[ReservedWindow, ...]:
        return tuple(
            window
            for window in self.windows
            if window.start_s < end_s
            and start_s < window.end_s
            and not window.reservation.admits(namespace, queue)
        )

    def _used_at(self, at_s: float) -> Ints:
        """Return what running gangs and reservations use at a moment."""
        used = self._cluster.used.copy()
        np.subtract.at(used, *self._running.released_by(at_s, self._cluster))
        for stay in self._started:
            if stay.end_s <= at_s:
                self._add(used, stay.slots, -1)
        for stay in self._reserved.values():
            if stay.start_s <= at_s < stay.end_s:
                self._add(used, stay.slots, 1)
        return used

    def _most_used(self, view: _View, rows: list[int]) -> Ints:
        """Return the maximal usage of rows now and at the moments of a view."""
        most = self._cluster.used[rows]
        for moment in self._moments[: view.count]:
            most = np.maximum(most, moment.used[rows])
        for window in view.windows:
            inside = np.isin(rows, window.rows)
            most = np.where(
                inside[:, None], np.maximum(most, self._cluster.allocatable[rows]), most
            )
        return most


def reserved_rows(cluster: Cluster, booking: AdvanceReservation) -> list[int]:
    """Return the rows of an advance reservation: its named nodes, or the first by name."""
    if booking.nodes:
        return [cluster.rows[name] for name in booking.nodes if name in cluster.rows]
    wanted = dict(booking.selector)
    fitting = [
        row
        for name, row in sorted(cluster.rows.items())
        if (node := cluster.nodes[row]) is not None
        and all(node.labels.get(key) == value for key, value in wanted.items())
    ]
    return fitting[: booking.count]


def _open_windows(
    cluster: Cluster, bookings: Iterable[AdvanceReservation], now_s: float
) -> Iterable[ReservedWindow]:
    for booking in bookings:
        window = booking.window(now_s)
        if window is not None:
            rows = np.array(reserved_rows(cluster, booking), dtype=np.int64)
            yield ReservedWindow(booking, *window, rows)
