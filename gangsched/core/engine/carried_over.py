"""What a gang has been through that no object of the cluster tells: the next process is told."""

from collections.abc import Mapping
from dataclasses import replace
from zlib import crc32

from gangsched.core.engine.gangs.gang import GangRecord
from gangsched.core.engine.gangs.member import State
from gangsched.core.facts import PastSeen
from gangsched.core.model.ids import NodeName, PodName
from gangsched.core.model.queues import QuotaKey
from gangsched.core.model.wire_names import recorded_text
from gangsched.core.snapshot import BackfillReservation


def past_of(
    gang: GangRecord, promise: BackfillReservation | None, held: Mapping[QuotaKey, int]
) -> PastSeen | None:
    """Return what a gang that holds so much now has been through, None where that is nothing."""
    blank = PastSeen(gang.id, gang.waits_since_s())
    runs = gang.state is State.PLACED
    members = gang.members.values() if runs and gang.bound_count() < len(gang.members) else ()
    found = PastSeen(
        gang.id,
        blank.since_s,
        attempts=gang.attempts,
        no_shows=gang.no_shows,
        unready_tries=gang.unready_tries,
        attained_s=gang.attained_s,
        not_before_s=None if gang.set_aside else gang.not_before_s,  # the quarantine keeps that
        avoid=tuple(gang.avoid.items()),
        most_per_node=gang.most_per_node,
        most_until_s=gang.most_until_s,
        given_up=gang.given_up,
        admitted=tuple(
            (key, most) for key, most in gang.admitted.items() if most > held.get(key, 0)
        ),
        vacated=tuple(m.name for m in members if m.started and m.pod is None),
        places=_places(gang),
        held_back=gang.held_back,
        promised_s=promise.start_s if promise is not None else None,
        promised=promise.nodes if promise is not None else (),
    )
    return None if found == blank else replace(found, declared=_declared(gang))


def recall(gang: GangRecord, past: PastSeen, now_s: float) -> None:
    """Let a gang have its past back, as far as it still matters."""
    gang.attained_s = past.attained_s
    gang.unready_tries = past.unready_tries
    gang.given_up = past.given_up if past.declared == _declared(gang) else ""
    gang.no_shows = past.no_shows
    for key, quantity in past.admitted:
        gang.admitted[key] = max(gang.admitted.get(key, 0), quantity)
    for name in past.vacated if gang.state is State.PLACED else ():
        member = gang.members.get(name)
        if member is not None and member.pod is None:
            member.started = True
    gang.attempts = past.attempts
    gang.avoid = {node: until_s for node, until_s in past.avoid if until_s > now_s}
    if past.most_until_s is not None and past.most_until_s > now_s:
        gang.most_per_node, gang.most_until_s = past.most_per_node, past.most_until_s
    gang.bump()


def _places(gang: GangRecord) -> tuple[tuple[PodName, NodeName], ...]:
    """Return what is reserved and stands in no status: only whole gangs without pods have that."""
    if not gang.in_progress():
        return ()
    if gang.pinned() and gang.state is not State.PLACED and not gang.held_back:
        return ()
    staged = (m for m in gang.members.values() if m.stage is not None)
    return tuple((m.name, m.node) for m in staged if m.node is not None)


def _declared(gang: GangRecord) -> int:
    return crc32(recorded_text(gang.spec).encode())
