"""Replay a journal: plan again on its facts, and compare the plans with the recorded ones."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gangsched.api.timestamps import rfc3339
from gangsched.config import ConfigError
from gangsched.core.engine.engine import Engine
from gangsched.core.model.ids import GangId
from gangsched.core.model.placement import Placement
from gangsched.core.planning.planner import Plan, Planned, make_plan
from gangsched.core.policy import Policies, PolicyError
from gangsched.core.snapshot import Snapshot
from gangsched.recording.journal import engine_of, entries, fact_of, placements_of


@dataclass(frozen=True, slots=True)
class Difference:
    """One gang that would be decided upon differently; None where a plan did not place it."""

    at_s: float
    gang: GangId
    then: Placement | None
    now: Placement | None
    why: str = ""

    def data(self) -> dict[str, str]:
        """Return the difference as JSON values."""
        return {
            "at": rfc3339(self.at_s),
            "gang": self.gang,
            "then": _described(self.then),
            "now": _described(self.now) or self.why,
        }


@dataclass(slots=True)
class Replayed:
    """What was compared; `differences` come as they are found."""

    plans: int = 0
    placed: int = 0
    facts: int = 0


def replay(
    path: Path, policies: Policies, done: Replayed, progress: Callable[[], None] = lambda: None
) -> Iterator[Difference]:
    """Yield where these policies decide differently.

    After each plan what was decided then is taken over, so that every plan is compared on the same
    history.

    Raises:
        ConfigError: the journal cannot be read.

    """
    engine: Engine | None = None
    look: tuple[Snapshot, float] | None = None
    for number, entry in enumerate(entries(path), 1):
        progress()
        if entry.word == "start":
            engine, look = engine_of(entry), None
            continue
        assert engine is not None, "a journal begins with a start"  # noqa: S101
        match entry.word:
            case "fact":
                done.facts += 1
                try:
                    engine.observe(fact_of(entry), entry.at_s)
                except ConfigError as error:
                    raise ConfigError(f"{path}: line {number}: {error}") from error
            case "tick":
                engine.tick(entry.at_s)
            case "look":
                look = engine.begin_cycle(entry.at_s, pods_max=entry.data["starts"]), entry.at_s
            case "plan" if look is not None:  # a cycle has no plan line if its planning failed
                plan = _plan(*look, policies)
                done.plans += 1
                then = placements_of(entry)
                done.placed += len(then)
                differences = list(_compare(entry.at_s, then, plan))
                yield from differences
                engine.accept(_as_then(plan, then, engine) if differences else plan, entry.at_s)


def _plan(snapshot: Snapshot, at_s: float, policies: Policies) -> Plan:
    """Return the plan of these policies; an empty one if a policy fails for a gang."""
    try:
        return make_plan(snapshot, policies, at_s)
    except PolicyError:
        return Plan(snapshot_number=snapshot.number)


def _compare(at_s: float, then: dict[GangId, Placement], plan: Plan) -> Iterator[Difference]:
    now = {planned.gang: planned.placement for planned in plan.placements}
    refused = {
        refused_gang.waiting.gang.id: refused_gang.refusal.message for refused_gang in plan.refusals
    }
    for gang in sorted({*then, *now}):
        before, after = then.get(gang), now.get(gang)
        if before is None or after is None or _gist(before) != _gist(after):
            yield Difference(at_s, gang, before, after, refused.get(gang, ""))


def _gist(placement: Placement) -> tuple[object, ...]:
    """Return the parts of a placement to compare: nodes, preempted gangs, repartitioned GPUs."""
    stops = sorted((eviction.gang, eviction.pods) for eviction in placement.evicts)
    cuts = sorted(cut.node for cut in placement.repartitions)
    return sorted(placement.nodes), stops, cuts, sorted(placement.devices)


def _as_then(plan: Plan, then: dict[GangId, Placement], engine: Engine) -> Plan:
    """Return a plan with the recorded placements instead of its own."""
    planned = tuple(
        Planned(state.id, state.version, placement)
        for gang, placement in then.items()
        if (state := engine.view.gangs.get(gang)) is not None
    )
    refusals = tuple(
        refused_gang for refused_gang in plan.refusals if refused_gang.waiting.gang.id not in then
    )
    return Plan(
        planned,
        refusals,
        plan.class_refusals,
        backfill_reservations=plan.backfill_reservations,
        snapshot_number=plan.snapshot_number,
    )


def _described(placement: Placement | None) -> str:
    """Describe a placement: the nodes with their numbers of pods, and the preempted gangs."""
    if placement is None:
        return ""
    counts: dict[str, int] = {}
    for _, node in sorted(placement.nodes):
        counts[node] = counts.get(node, 0) + 1
    places = ", ".join(f"{node} x{n}" if n > 1 else node for node, n in counts.items())
    stops = ", ".join(eviction.gang for eviction in placement.evicts)
    return f"{places}, stopping {stops}" if stops else places
