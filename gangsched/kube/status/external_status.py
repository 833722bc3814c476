"""How far a gang is, as the status of another scheduler's group says it."""

from gangsched.core.engine.engine import Engine
from gangsched.core.model.ids import GangId


def pod_counts(engine: Engine, gang_id: GangId) -> tuple[int, tuple[int, int, int]]:
    """Return a gang's minimum, and how many of its pods run, succeeded and failed."""
    gang = engine.gangs.get(gang_id)
    if gang is None:
        return 1, (0, 0, 0)
    members = gang.members.values()
    running = sum(member.runs and member.ready for member in members)
    failed = sum(member.ended and member.failed for member in members)
    return gang.minimum(), (running, gang.ended_count(), failed)
