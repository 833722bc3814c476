"""The history of gangs (attempts, exclusions, preemptions), kept across restarts in a ConfigMap."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from gangsched.core import facts as f
from gangsched.core.bounds import PAST_LETTERS
from gangsched.core.engine.view import EngineView
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.kube.stored.config_map import ConfigMapEntry
from gangsched.recording.wire import from_wire, to_wire

log = logging.getLogger(__name__)

_EVERY_S = 10.0
_SAVE_S = 5.0
_FORMAT = 1


class _Written(msgspec.Struct):
    format: int = _FORMAT
    gangs: list[Any] = []
    stopped: list[Any] = []
    ended: list[Any] = []


_written = msgspec.json.Decoder(_Written)

_WHAT = {f.HistoryRestored: "gangs", f.PreemptionRestored: "stopped", f.EndRestored: "ended"}


class GangHistoryStore:
    """Reads and writes the ConfigMap `namespace/name`; a malformed text is logged and replaced."""

    def __init__(self, client: KubeClient, config_map: str) -> None:
        self._place = ConfigMapEntry(client, config_map, "gangs.json")
        self._kept = ""
        self._known = False
        self._saving = asyncio.Lock()

    async def read(self) -> list[f.StoredFact]:
        """Return the history that an earlier process stored."""
        self._kept, self._known = await self._place.read(), True
        try:
            return read(self._kept or "{}")
        except ValueError as error:
            log.warning("%s: %s", self._place, error)
            return []

    async def run(self, view: EngineView) -> None:
        """Save the history periodically until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.save(view)

    async def save(self, view: EngineView) -> None:
        """Write the history if it changed; a failure is logged, and the next call tries again."""
        async with self._saving:  # the newest must be the last
            if not self._known:
                return  # this process never led, so the stored history is another process's
            text = written(view.past())
            if text == self._kept or (not self._kept and text == written(())):
                return
            try:
                async with asyncio.timeout(_SAVE_S):
                    await self._place.write(text)
                self._kept = text
            except (KubeError, TimeoutError) as error:
                log.warning("%s: is not written: %s", self._place, error or "no answer")


def read(text: str) -> list[f.StoredFact]:
    """Return the history of a text that `written` made; an empty one for another format.

    Raises:
        ValueError: the text is not of that form.

    """
    try:
        stored = _written.decode(text)
        gangs = from_wire(stored.gangs, list[f.HistoryRestored])
        stopped = from_wire(stored.stopped, list[f.PreemptionRestored])
        ended = from_wire(stored.ended, list[f.EndRestored])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return [*gangs, *stopped, *ended] if stored.format == _FORMAT else []


def written(pasts: Iterable[f.StoredFact]) -> str:
    """Return the history as JSON; if it is too long, each namespace keeps an equal share."""
    turns: Counter[str] = Counter()
    candidates: list[tuple[int, int, str, str]] = []
    for at, past in enumerate(pasts):
        gang = past.victim if isinstance(past, f.PreemptionRestored) else past.gang
        namespace = gang.partition("/")[0]
        turns[namespace] += 1
        text = msgspec.json.encode(_bare(past)).decode()
        candidates.append((turns[namespace], at, _WHAT[type(past)], text))
    left = PAST_LETTERS.most
    chosen: list[tuple[int, str, str]] = []
    for _, at, what, text in sorted(candidates):
        left -= len(text) + 1
        if left >= 0:
            chosen.append((at, what, text))
    lists = {
        what: ",".join(text for _, of, text in sorted(chosen) if of == what)
        for what in _WHAT.values()
    }
    body = ",".join(
        f'"{what}":[{texts}]' for what, texts in lists.items() if texts or what != "ended"
    )
    return f'{{"format":{_FORMAT},{body}}}'


def _bare(past: f.StoredFact) -> dict[str, object]:
    """Return the values that are not empty, and those that decoding needs."""
    values: dict[str, object] = to_wire(past)
    needed = {"gang", "since_s", "victim", "by", "at_s"}
    return {key: value for key, value in values.items() if value or key in needed}
