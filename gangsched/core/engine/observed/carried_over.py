"""The history of a gang that no object of the cluster stores, for the next process."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypedDict
from zlib import crc32

from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.engine.gangs.member import State
from gangsched.core.engine.gangs.run import AnnouncedStop
from gangsched.core.facts import HistoryRestored
from gangsched.core.model.ids import NodeName, PodName
from gangsched.core.model.queues import QuotaKey
from gangsched.core.model.wire_names import recorded_text
from gangsched.core.snapshot import BackfillReservation


class _Stop(TypedDict, total=False):
    stop_since_s: float
    stop_by_s: float
    stop_for: str
    stop_cause: str


def history_of(
    gang: GangState, reservation: BackfillReservation | None, held: Mapping[QuotaKey, int]
) -> HistoryRestored | None:
    """Return the history of a gang that holds this quota now, or None if it has none."""
    blank = HistoryRestored(gang.id, gang.waits_since_s())
    runs = gang.state is State.PLACED
    members = (
        gang.members.values() if runs and gang.members.bound_count() < len(gang.members) else ()
    )
    history = HistoryRestored(
        gang.id,
        blank.created_s,
        attempts=gang.retry.attempts,
        no_shows=gang.retry.no_shows,
        unready_tries=gang.retry.unready_tries,
        attained_service_s=gang.attained_service_s,
        backoff_until_s=None
        if gang.retry.set_aside
        else gang.retry.backoff_until_s,  # the quarantine stores that
        excluded_nodes=tuple(gang.retry.excluded_nodes.items()),
        pods_per_node_max=gang.retry.pods_per_node_max,
        pods_per_node_until_s=gang.retry.pods_per_node_until_s,
        failure_message=gang.retry.failure_message,
        admitted=tuple(
            (key, most) for key, most in gang.run.admitted.items() if most > held.get(key, 0)
        ),
        vacated=tuple(m.name for m in members if m.started and m.pod is None),
        places=_places(gang),
        waits_for_capacity=gang.reservation.waits_for_capacity,
        reserved_start_s=reservation.start_s if reservation is not None else None,
        reserved_nodes=reservation.nodes if reservation is not None else (),
        **_stop_of(gang),
    )
    return None if history == blank else replace(history, declared=_declared(gang))


def restore_history(gang: GangState, past: HistoryRestored, now_s: float) -> None:
    """Restore the history of a gang, as far as it still matters."""
    gang.attained_service_s = past.attained_service_s
    gang.retry.unready_tries = past.unready_tries
    as_declared = past.declared == _declared(gang)
    gang.retry.failure_message = past.failure_message if as_declared else ""
    gang.retry.no_shows = past.no_shows
    for key, quantity in past.admitted:
        gang.run.admitted[key] = max(gang.run.admitted.get(key, 0), quantity)
    for name in past.vacated if gang.state is State.PLACED else ():
        member = gang.members.get(name)
        if member is not None and member.pod is None:
            member.started = True
    gang.retry.attempts = past.attempts
    gang.retry.excluded_nodes = {
        node: until_s for node, until_s in past.excluded_nodes if until_s > now_s
    }
    if past.pods_per_node_until_s is not None and past.pods_per_node_until_s > now_s:
        gang.retry.pods_per_node_max, gang.retry.pods_per_node_until_s = (
            past.pods_per_node_max,
            past.pods_per_node_until_s,
        )
    gang.mark_changed()


def _places(gang: GangState) -> tuple[tuple[PodName, NodeName], ...]:
    """Return the assignments that no status stores: the status has those of pinned gangs."""
    if not gang.members.in_progress():
        return ()
    if (
        gang.is_pinned()
        and gang.state is not State.PLACED
        and not gang.reservation.waits_for_capacity
    ):
        return ()
    staged = (m for m in gang.members.values() if m.stage is not None)
    return tuple((m.name, m.assigned_node) for m in staged if m.assigned_node is not None)


def _stop_of(gang: GangState) -> _Stop:
    notice = gang.run.stop
    if notice is None:
        return {}
    return {
        "stop_since_s": notice.since_s,
        "stop_by_s": notice.by_s,
        "stop_for": notice.of,
        "stop_cause": notice.cause,
    }


def stop_of(past: HistoryRestored) -> AnnouncedStop | None:
    """Return the notice that a gang had, None if it had none."""
    if past.stop_since_s is None or past.stop_by_s is None or not past.stop_for:
        return None
    return AnnouncedStop(past.stop_for, past.stop_cause, past.stop_since_s, past.stop_by_s)


def _declared(gang: GangState) -> int:
    return crc32(recorded_text(gang.spec).encode())
