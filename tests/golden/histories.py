"""Golden journals, replayed: the orders of the engine, and the journal that it writes again."""

import io
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from golden import DATA, plain

from gangsched.config import load_config
from gangsched.core import orders as o
from gangsched.core.engine.engine import Engine
from gangsched.core.planning.planner import Plan, make_plan
from gangsched.core.policy import Policies, PolicyError
from gangsched.core.snapshot import Snapshot
from gangsched.plugins import load_policies
from gangsched.recording.audit_log import AuditLog
from gangsched.recording.journal import (
    Journal,
    JournalEntry,
    RecordingEngine,
    engine_of,
    entries,
    fact_of,
)

OTHERS = {
    "order": "shortest",
    "sharing": "fair",
    "backfill": "conservative",
    "preemptor": "youngest",
    "placer": "topology",
}
RECORDED: dict[str, tuple[int, dict[str, str]]] = {
    "default": (3, {}),
    "others": (7, OTHERS),
    "asked": (12, {}),
    "simple": (5, {"placer": "pack", "sharing": "drf", "backfill": "greedy", "order": "fifo"}),
}
"""Journals by their names: the seed, and the policies that are not the default ones."""

ASKS: dict[str, tuple[float, float]] = {"asked": (240.0, 12.0)}
"""Until when a history lasts whose jobs save before they are stopped, and how long they ask for."""

WORDS: dict[type[o.Order], str] = {
    o.Reserve: "Reserve",
    o.Release: "Release",
    o.RepartitionGpus: "CutGpus",
    o.Prepare: "Prepare",
    o.Bind: "Bind",
    o.RejectPod: "Refuse",
    o.Evict: "Evict",
    o.Preempt: "Preempt",
    o.Drain: "Drain",
    o.AnnounceStop: "AnnounceStop",
    o.WithdrawStop: "WithdrawStop",
    o.Report: "Report",
}
"""How golden files name orders, whatever their classes are called."""


def policies_of(name: str) -> Policies:
    """Return the policies by which a journal was recorded."""
    return load_policies(load_config(None, **RECORDED[name][1]))


@dataclass(slots=True)
class Replayed:
    """What came of a journal: orders, the audit trail and the journal written anew."""

    engine: Engine
    now_s: float = 0.0
    orders: list[str] = field(default_factory=list)
    audit: io.StringIO = field(default_factory=io.StringIO)
    journal: io.StringIO = field(default_factory=io.StringIO)
    facts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)

    def add(self, at_s: float, orders: tuple[o.Order, ...]) -> None:
        """Note orders, in order."""
        trail = AuditLog(self.audit)
        for order in orders:
            trail.order(self.engine.view, order, at_s)
            self.kinds[WORDS[type(order)]] += 1
            line = [round(at_s, 6), WORDS[type(order)], *plain(order)]
            self.orders.append(json.dumps(line, separators=(",", ":")))


def begin(entry: JournalEntry, file: io.StringIO) -> Engine:
    """Return an engine that writes a journal, as one began by a journal."""
    before = engine_of(entry)
    engine = RecordingEngine(Engine(before.limits, before.view.ledger), Journal(file))
    engine.history.merge_json(before.history.to_json())
    engine.driver_checks_unmodelled = before.driver_checks_unmodelled
    return engine


def replayed(
    path: Path, policies: Policies, seen: Callable[[Engine], None] | None = None
) -> Replayed:
    """Tell an engine what a journal tells, have it plan when it planned, and note what it does."""
    listed = list(entries(path))
    found = Replayed(begin(listed[0], io.StringIO()))
    look: tuple[Snapshot, float] | None = None
    for entry in listed:
        found.now_s = entry.at_s
        match entry.word:
            case "start":
                found.engine, look = begin(entry, found.journal), None
            case "fact":
                found.facts[entry.what] += 1
                fact = fact_of(entry)
                AuditLog(found.audit).fact(found.engine.view, fact, entry.at_s)
                found.add(entry.at_s, found.engine.observe(fact, entry.at_s))
            case "tick":
                found.add(entry.at_s, found.engine.tick(entry.at_s))
            case "look":
                look = (
                    found.engine.begin_cycle(entry.at_s, pods_max=entry.data["starts"]),
                    entry.at_s,
                )
            case "plan":
                assert look is not None
                found.add(entry.at_s, found.engine.accept(_plan(*look, policies), entry.at_s))
        if seen is not None:
            seen(found.engine)
    return found


def _plan(snapshot: Snapshot, at_s: float, policies: Policies) -> Plan:
    try:
        return make_plan(snapshot, policies, at_s)
    except PolicyError:
        return Plan(snapshot_number=snapshot.number)


def path_of(name: str) -> Path:
    """Return where a journal is."""
    return DATA / f"journal-{name}.jsonl.gz"


@cache
def history(name: str) -> Replayed:
    """Return what came of a golden journal."""
    return replayed(path_of(name), policies_of(name))
