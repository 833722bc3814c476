"""Why a gang cannot be planned yet: its declaration or some of its pods are missing."""

from collections import Counter

from gangsched.core.bounds import PODS_OF_GANG
from gangsched.core.engine.gangs.gang import GangState
from gangsched.core.model.refusal import Reason, Refusal, undeclared


def incomplete_reason(gang: GangState) -> Refusal | None:
    """Return why a gang cannot be planned yet, or None when it can."""
    wrong = next((m.invalid for m in gang.members.values() if m.invalid), "")
    if wrong:
        return Refusal(gang.id, Reason.MISCONFIGURED, f"{wrong}.")
    if gang.spec is None or gang.undeclared:
        return Refusal(gang.id, Reason.NO_GROUP, undeclared(gang.id))
    if len(gang.members) > PODS_OF_GANG.most:
        pods = f"there are {len(gang.members)} {PODS_OF_GANG.what}"
        message = f"{pods}; {PODS_OF_GANG.most} are allowed."
        return Refusal(gang.id, Reason.MISCONFIGURED, message)
    waiting = gang.unassigned_members()
    late = sum(
        member.planned_early for member in waiting
    )  # their pods cannot come before the others run
    there = len(waiting) - late + gang.members.bound_count() + gang.members.ended_count()
    wanted = max(gang.minimum() - late, 1)
    if there < wanted:
        return _too_few(gang, there, wanted)
    members = gang.members.values() if gang.spec.roles else ()
    have = Counter(m.role for m in members if not (m.terminating or m.gated_by))
    for role in gang.spec.roles:
        if have[role.name] < role.min_count:
            return _too_few(gang, have[role.name], role.min_count, role.name)
    return None


def _too_few(gang: GangState, there: int, wanted: int, role: str = "") -> Refusal:
    counted = f"{there} of at least {wanted} pods" + (f" of role {role}" if role else "")
    held = (m for m in gang.members.values() if m.gated_by and (not role or m.role == role))
    first = next(held, None)
    reason, why = Reason.TOO_FEW_PODS, "exist"
    if first is not None:
        reason = Reason.GATED
        why = (
            f"may be scheduled; pod {first.name} has the scheduling gate {first.gated_by}, and "
            "the controller that set the gate has to remove it"
        )
    return Refusal(gang.id, reason, f"{counted} {why}.", role, wanted, there)
