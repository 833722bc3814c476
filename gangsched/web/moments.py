"""The moments of a journal: an engine as it was at any time, from checkpoints and the facts after.

A snapshot is a journal of one moment. Reading a journal makes checkpoints of its engine, so that a
moment needs only the facts since the last one. Facts alone decide: what was assigned and not bound
by then is not known.
"""

import asyncio
import pickle
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from gangsched.config import ConfigError
from gangsched.core.engine.scheduling_engine import SchedulingEngine
from gangsched.recording.journal import engine_of, entries, fact_of, placements_of
from gangsched.web.gang_log import GangLog
from gangsched.web.keeper import ModelKeeper, PageSource, Samples, with_samples
from gangsched.web.model import JournalMoment, QueueRow

_EVERY, _CHECKPOINTS, _CHECKPOINT_BYTES = 1000, 32, 256 << 20
_KEEPERS = 4
_READINGS_WAITING = 16

QueueRows = Callable[[SchedulingEngine], tuple[QueueRow, ...]]
MakeSource = Callable[[SchedulingEngine, float], PageSource]
"""Returns the source of the pages of an engine at a moment."""


class ReadingBusyError(Exception):
    """Too many moments are read at once."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """An engine after so many lines of a journal, pickled in this process."""

    at_s: float
    lines: int
    engine: bytes = field(repr=False)


class JournalReader:
    """Reads a journal once, and returns the engine of any of its moments."""

    def __init__(self, file: Path, queue_rows: QueueRows) -> None:
        self._file, self._queue_rows = file, queue_rows
        self.first_s = self.last_s = 0.0
        self.log: GangLog | None = None
        self.samples: Samples = {}
        self._checkpoints: list[Checkpoint] = []

    def read(self, progress: Callable[[int], None] = lambda _: None) -> None:
        """Read the whole journal; `progress` gets the number of lines that were read.

        Raises:
            ConfigError: the journal cannot be read.

        """
        engine: SchedulingEngine | None = None
        every = _EVERY
        for number, entry in enumerate(entries(self._file), 1):
            if entry.word == "start":
                if engine is None:
                    self.first_s = entry.at_s
                engine = engine_of(entry)
                if self.log is None:
                    self.log = GangLog(engine.view)
                else:
                    self.log.follow(engine.view)
            assert engine is not None, "a journal begins with a start"  # noqa: S101
            assert self.log is not None, "an engine has a log"  # noqa: S101
            self.last_s = entry.at_s
            if entry.word == "fact":
                try:
                    fact = fact_of(entry)
                except ConfigError as error:
                    raise ConfigError(f"{self._file}: line {number}: {error}") from error
                self.log.before(fact, entry.at_s)
                engine.observe(fact, entry.at_s)
            elif entry.word == "plan":
                self.log.assigned(placements_of(entry), entry.at_s)
            if number % every == 0:
                progress(number)
                every = self._checkpoint(engine, number, every)
        assert self.log is not None, "a journal is not empty"  # noqa: S101
        self.log.settle()

    def _checkpoint(self, engine: SchedulingEngine, lines: int, every: int) -> int:
        """Keep a checkpoint, or half of them with twice the distance; return the distance."""
        self.samples = with_samples(self.samples, self._queue_rows(engine), self.last_s)
        pickled = pickle.dumps(engine, pickle.HIGHEST_PROTOCOL)
        self._checkpoints.append(Checkpoint(self.last_s, lines, pickled))
        kept = self._checkpoints
        if len(kept) > _CHECKPOINTS or sum(len(one.engine) for one in kept) > _CHECKPOINT_BYTES:
            del kept[::2]
            return every * 2
        return every

    def engine_at(self, at_s: float) -> SchedulingEngine:
        """Return a new engine as the facts until a moment leave it."""
        engine: SchedulingEngine | None = None
        place = bisect_right(self._checkpoints, at_s, key=lambda one: one.at_s)
        lines = 0
        if place:
            checkpoint = self._checkpoints[place - 1]
            engine, lines = pickle.loads(checkpoint.engine), checkpoint.lines  # noqa: S301 -- own
        for entry in entries(self._file, lines):
            if engine is not None and entry.at_s > at_s:
                break
            if entry.word == "start":
                engine = engine_of(entry)
            elif entry.word == "fact" and engine is not None:
                engine.observe(fact_of(entry), entry.at_s)
        assert engine is not None, "a journal begins with a start"  # noqa: S101
        engine.tick(at_s)
        return engine

    def moment(self, at_s: float) -> JournalMoment | None:
        """Return where a moment is in the journal; None if the journal has one moment."""
        if self.log is None or self.last_s <= self.first_s:
            return None
        return JournalMoment(self.first_s, self.last_s, *self.log.changes_beside(at_s))

    def samples_until(self, at_s: float) -> Samples:
        """Return the samples of the queues that were taken by a moment."""
        return {
            name: tuple(sample for sample in samples if sample.at_s <= at_s)
            for name, samples in self.samples.items()
        }


class JournalMoments:
    """The keepers of the moments that viewers look at, the last few of them."""

    def __init__(self, reader: JournalReader, make_source: MakeSource) -> None:
        self._reader, self._make_source = reader, make_source
        self._keepers: OrderedDict[float, tuple[ModelKeeper, asyncio.Task[None]]] = OrderedDict()
        self._reading, self._waiting = asyncio.Lock(), 0

    @property
    def last_s(self) -> float:
        """Return the last moment."""
        return self._reader.last_s

    def moment_at(self, part: float) -> float:
        """Return the moment after a part of the journal's time, from 0 to 1."""
        first_s, last_s = self._reader.first_s, self._reader.last_s
        return first_s + (last_s - first_s) * min(max(part, 0.0), 1.0)

    async def keeper(self, at_s: float) -> ModelKeeper:
        """Return the keeper of a moment; a moment beyond the journal is its first or last.

        Raises:
            ReadingBusyError: too many moments are read now.

        """
        at_s = min(max(at_s, self._reader.first_s), self._reader.last_s)
        if self._waiting >= _READINGS_WAITING:
            raise ReadingBusyError("Too many moments of the journal are read now; try again.")
        self._waiting += 1
        try:
            async with self._reading:
                known = self._keepers.get(at_s)
                if known is None:
                    known = self._keepers[at_s] = await self._keep(at_s)
                self._keepers.move_to_end(at_s)
        finally:
            self._waiting -= 1
        while len(self._keepers) > _KEEPERS:
            _, (_, task) = self._keepers.popitem(last=False)
            task.cancel()
        return known[0]

    async def _keep(self, at_s: float) -> tuple[ModelKeeper, asyncio.Task[None]]:
        engine = await asyncio.to_thread(self._reader.engine_at, at_s)
        source = self._make_source(engine, at_s)
        source.log, source.moment = self._reader.log, self._reader.moment(at_s)
        source.earlier_samples = self._reader.samples_until(at_s)
        keeper = ModelKeeper(source)
        return keeper, asyncio.create_task(keeper.run())

    async def close(self) -> None:
        """Stop what is computed."""
        for _, task in self._keepers.values():
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
