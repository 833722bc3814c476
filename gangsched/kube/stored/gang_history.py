"""What gangs have been through, kept across restarts in a ConfigMap beside the scheduler."""

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


_written = msgspec.json.Decoder(_Written)

_WHAT = {f.HistoryRestored: "gangs", f.PreemptionRestored: "stopped"}


class GangHistoryStore:
    """Reads and writes the ConfigMap `namespace/name`; a wrong one is reported and replaced."""

    def __init__(self, client: KubeClient, config_map: str) -> None:
        self._place = ConfigMapEntry(client, config_map, "gangs.json")
        self._kept = ""
        self._known = False
        self._saving = asyncio.Lock()

    async def read(self) -> list[f.HistoryRestored | f.PreemptionRestored]:
        """Return what an earlier process knew."""
        self._kept, self._known = await self._place.read(), True
        try:
            return read(self._kept or "{}")
        except ValueError as error:
            log.warning("%s: %s", self._place, error)
            return []

    async def run(self, view: EngineView) -> None:
        """Write whenever something changed, until cancelled."""
        while True:
            await asyncio.sleep(_EVERY_S)
            await self.save(view)

    async def save(self, view: EngineView) -> None:
        """Write what changed; where that fails it is said, and tried again with the next change."""
        async with self._saving:  # the newest must be the last
            if not self._known:
                return  # this process never led: what is kept is that of another
            text = written(view.past())
            if text == self._kept or (not self._kept and text == written(())):
                return
            try:
                async with asyncio.timeout(_SAVE_S):
                    await self._place.write(text)
                self._kept = text
            except (KubeError, TimeoutError) as error:
                log.warning("%s: is not written: %s", self._place, error or "no answer")


def read(text: str) -> list[f.HistoryRestored | f.PreemptionRestored]:
    """Return what `written` wrote; nothing of another format.

    Raises:
        ValueError: the text is not of that form.

    """
    try:
        found = _written.decode(text)
        gangs = from_wire(found.gangs, list[f.HistoryRestored])
        stopped = from_wire(found.stopped, list[f.PreemptionRestored])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(str(error)) from error
    return [*gangs, *stopped] if found.format == _FORMAT else []


def written(pasts: Iterable[f.HistoryRestored | f.PreemptionRestored]) -> str:
    """Return as many as fit as JSON, taken from the namespaces in turn."""
    turns: Counter[str] = Counter()
    found: list[tuple[int, int, str, str]] = []
    for at, one in enumerate(pasts):
        namespace = (one.gang if isinstance(one, f.HistoryRestored) else one.victim).partition("/")[
            0
        ]
        turns[namespace] += 1
        text = msgspec.json.encode(_bare(one)).decode()
        found.append((turns[namespace], at, _WHAT[type(one)], text))
    left = PAST_LETTERS.most
    chosen: list[tuple[int, str, str]] = []
    for _, at, what, text in sorted(found):
        left -= len(text) + 1
        if left >= 0:
            chosen.append((at, what, text))
    lists = {
        what: ",".join(text for _, of, text in sorted(chosen) if of == what)
        for what in _WHAT.values()
    }
    body = ",".join(f'"{what}":[{texts}]' for what, texts in lists.items())
    return f'{{"format":{_FORMAT},{body}}}'


def _bare(one: f.HistoryRestored | f.PreemptionRestored) -> dict[str, object]:
    """Return the values that say something."""
    values: dict[str, object] = to_wire(one)
    needed = {"gang", "since_s", "victim", "by", "at_s"}
    return {key: value for key, value in values.items() if value or key in needed}
