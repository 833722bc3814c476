"""The journal: every fact that the engine observed and every decision, one JSON line each.

`gangsched run` writes a journal if the setting `journal` has a path. `gangsched snapshot` writes
the present facts in the same form. From a journal gangsched restores an engine or replays its
decisions.
"""

import gzip
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, get_args

import msgspec

from gangsched import __version__
from gangsched.config import ConfigError
from gangsched.core import facts as f
from gangsched.core import orders as o
from gangsched.core.engine.engine import Engine
from gangsched.core.engine.limits import Limits
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.core.engine.view import EngineView
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.ids import GangId
from gangsched.core.model.placement import Placement
from gangsched.core.model.queues import GpuWeights
from gangsched.core.model.refusal import Refusal
from gangsched.core.planning.planner import Plan
from gangsched.core.quota.ledger import Ledger
from gangsched.core.quota.runtime_history import RuntimeHistory
from gangsched.core.snapshot import Snapshot
from gangsched.recording.anonymize import Pseudonyms
from gangsched.recording.wire import from_wire, to_wire

FORMAT = "gangsched.io/journal/v1"

_FIRST_NAMES: dict[type[f.Fact], str] = {
    f.AdvanceReservationSeen: "BookingSeen",
    f.AdvanceReservationGone: "BookingGone",
    f.UsageRestored: "GpuTimeSeen",
    f.AssignmentsRestored: "ReservationSeen",
    f.HistoryRestored: "PastSeen",
    f.PreemptionRestored: "StoppedSeen",
}
"""Facts with another name in the journal: the former names are part of the format."""


def name_of(kind: type[f.Fact]) -> str:
    """Return the name of a kind of fact in the journal."""
    return _FIRST_NAMES.get(kind, kind.__name__)


_FACTS: dict[str, type[f.Fact]] = {name_of(kind): kind for kind in get_args(f.Fact)}

Word = Literal["start", "fact", "tick", "look", "plan"]


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A line. `what` is the name of a fact; `data` is the fact, plan or initial state of an engine.

    `start` begins an engine, `look` takes a snapshot to plan on, and `plan` accepts the plan.
    """

    word: Word
    at_s: float
    what: str = ""
    data: Any = None


@dataclass(slots=True)
class Journal:
    """Writes lines; each line is flushed to the file before the call returns."""

    file: IO[str]

    def write(self, word: Word, at_s: float, what: str = "", data: object = None) -> None:
        """Add a line."""
        values: dict[str, Any] = {"word": word, "at_s": at_s}
        if what:
            values["what"] = what
        if data is not None:
            values["data"] = to_wire(data)
        self.file.write(msgspec.json.encode(values).decode() + "\n")
        self.file.flush()

    def begin(self, engine: SchedulingEngine, at_s: float, history: Any = None) -> None:
        """Add the initial state of an engine; `history` replaces its run times if it is given."""
        ledger = engine.view.ledger
        data = {
            "format": FORMAT,
            "version": __version__,
            "limits": engine.limits,
            "rates": dict(ledger.gpu_weights.weights),
            "half_life_s": ledger.half_life_s,
            "beyond_is_judged": engine.driver_checks_unmodelled,
            "history": engine.history.to_json() if history is None else history,
        }
        self.write("start", at_s, data=data)

    def fact(self, fact: f.Fact, at_s: float) -> None:
        """Add a fact."""
        self.write("fact", at_s, name_of(type(fact)), fact)


class RecordingEngine:
    """Wraps an engine: records its facts and plans, and passes every call on."""

    def __init__(self, inner: SchedulingEngine, journal: Journal) -> None:
        self._inner = inner
        self._journal = journal
        self._begun = False

    # -- recorded -----------------------------------------------------------------------------

    def observe(self, fact: f.Fact, now_s: float) -> tuple[o.Order, ...]:
        """Record a fact, and observe it."""
        if not self._begun:  # by now the driver has restored the run times
            self._begun = True
            self._journal.begin(self._inner, now_s)
        self._journal.fact(fact, now_s)
        return self._inner.observe(fact, now_s)

    def tick(self, now_s: float) -> tuple[o.Order, ...]:
        """Record the present time, and apply it."""
        if self._begun:
            self._journal.write("tick", now_s)
        return self._inner.tick(now_s)

    def begin_cycle(self, now_s: float = 0.0, *, pods_max: int | None = None) -> Snapshot:
        """Record that a cycle begins, and return its snapshot."""
        self._journal.write("look", now_s, data={"starts": pods_max})
        return self._inner.begin_cycle(now_s, pods_max=pods_max)

    def accept(self, plan: Plan, now_s: float) -> tuple[o.Order, ...]:
        """Record the placements of a plan, and accept it; advice is not recorded."""
        if not plan.advice:
            placements = {planned.gang: planned.placement for planned in plan.placements}
            self._journal.write("plan", now_s, data=placements)
        return self._inner.accept(plan, now_s)

    # -- passed on ----------------------------------------------------------------------------

    @property
    def view(self) -> EngineView:
        """The state of the engine, for reading."""
        return self._inner.view

    @property
    def history(self) -> RuntimeHistory:
        """The observed run times."""
        return self._inner.history

    @property
    def limits(self) -> Limits:
        """How long each step in the life of a gang may take."""
        return self._inner.limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._inner.limits = limits

    @property
    def driver_checks_unmodelled(self) -> bool:
        """Whether the driver checks what the planner does not model."""
        return self._inner.driver_checks_unmodelled

    @driver_checks_unmodelled.setter
    def driver_checks_unmodelled(self, checks: bool) -> None:
        self._inner.driver_checks_unmodelled = checks

    def next_deadline_s(self) -> float | None:
        """Return the time of the next deadline, for `tick`, or None."""
        return self._inner.next_deadline_s()

    def has_pending_work(self) -> bool:
        """Return whether a plan made now may place a gang that the last plan did not."""
        return self._inner.has_pending_work()

    def take_advice_requests(
        self, limit: int, now_s: float
    ) -> tuple[tuple[PendingGang, Refusal], ...]:
        """Return refused gangs that need advice; they count as advised now."""
        return self._inner.take_advice_requests(limit, now_s)

    def audit(self, now_s: float) -> dict[str, int]:
        """Correct the usage of queues; return differences."""
        return self._inner.audit(now_s)


# -- reading --------------------------------------------------------------------------------------


def entries(path: Path, skip: int = 0) -> Iterator[JournalEntry]:
    """Yield the lines of a journal, compressed or not, after those to skip.

    Raises:
        ConfigError: the file is missing or is no journal, or a line is malformed. An incomplete
            last line, which a killed scheduler leaves, is ignored.

    """
    decoder = msgspec.json.Decoder(JournalEntry)
    first = True
    try:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rt") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith("\n"):
                    return  # the writer was killed while it wrote this line
                if number <= skip:
                    first = False
                    continue
                try:
                    entry = decoder.decode(line)
                except msgspec.DecodeError as error:
                    raise ConfigError(f"{path}: line {number}: {error}") from error
                if first and (entry.word != "start" or entry.data.get("format") != FORMAT):
                    raise ConfigError(f"{path}: line 1: is no journal of the form {FORMAT}")
                first = False
                yield entry
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if first:
        raise ConfigError(f"{path}: is empty")


def fact_of(entry: JournalEntry) -> f.Fact:
    """Return the fact of a line.

    Raises:
        ConfigError: there is no such fact, or a value of the fact is malformed.

    """
    kind = _FACTS.get(entry.what)
    if kind is None:
        raise ConfigError(f"a journal has no fact {entry.what!r}; there are: {', '.join(_FACTS)}")
    try:
        fact: f.Fact = from_wire(entry.data, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{entry.what}: {error}") from error
    return fact


def placements_of(entry: JournalEntry) -> dict[GangId, Placement]:
    """Return the placements of a plan, by gang."""
    return from_wire(entry.data, dict[GangId, Placement])


def engine_of(entry: JournalEntry) -> Engine:
    """Return an engine with the initial state of a `start` line."""
    data = entry.data
    ledger = Ledger(GpuWeights(data["rates"]), data["half_life_s"])
    engine = Engine(from_wire(data["limits"], Limits), ledger)
    engine.history.merge_json(data["history"])
    engine.driver_checks_unmodelled = data["beyond_is_judged"]
    return engine


@dataclass(slots=True)
class RestoredEngine:
    """The engine at the end of a journal, and the time of the last line."""

    engine: SchedulingEngine
    now_s: float
    facts: list[f.Fact] = field(default_factory=list)


def restore(path: Path) -> RestoredEngine:
    """Return the engine as its last facts leave it, and those facts; it has decided nothing.

    Raises:
        ConfigError: the journal cannot be read.

    """
    restored: RestoredEngine | None = None
    for entry in entries(path):
        if entry.word == "start":
            restored = RestoredEngine(engine_of(entry), entry.at_s)
        assert restored is not None, "a journal begins with a start"  # noqa: S101
        restored.now_s = entry.at_s
        if entry.word == "fact":
            fact = fact_of(entry)
            restored.engine.observe(fact, entry.at_s)
            restored.facts.append(fact)
    assert restored is not None, "a journal is not empty"  # noqa: S101
    restored.engine.tick(restored.now_s)
    return restored


def write_facts(path: Path, recalled: RestoredEngine, names: Pseudonyms | None = None) -> None:
    """Write the facts of one moment; with names, hidden."""
    history = recalled.engine.history.to_json()
    if names is not None:
        names.learn(recalled.facts)
        history = names.history(history)
    with (gzip.open if path.suffix == ".gz" else open)(path, "wt") as file:
        journal = Journal(file)
        journal.begin(recalled.engine, recalled.now_s, history)
        for fact in recalled.facts:
            data = to_wire(fact)
            journal.write(
                "fact",
                recalled.now_s,
                name_of(type(fact)),
                names.hide(data) if names is not None else data,
            )
