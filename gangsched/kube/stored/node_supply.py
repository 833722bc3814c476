"""The nodes that the leader can buy, stored for commands and pages, which lack its settings."""

import asyncio
import logging
from collections.abc import Callable

import msgspec

from gangsched.core.engine.view import EngineView
from gangsched.core.facts import NodeSupplySeen
from gangsched.core.model.node_pools import NodeSupply
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.kube.stored.config_map import ConfigMapEntry
from gangsched.recording.wire import from_wire, to_wire

log = logging.getLogger(__name__)

BYTES_MAX = 256 * 1024
"""A ConfigMap has 1 MiB, and other keys beside this."""

_SAVE_S = 5.0
_FOLLOW_S = 30.0
_NOTHING = NodeSupply()


class StoredNodeSupply:
    """Stores what can be bought and what comes in the ConfigMap `namespace/name`."""

    def __init__(self, client: KubeClient, config_map: str) -> None:
        self._place = ConfigMapEntry(client, config_map, "node-supply.json")
        self._written: str | None = None

    async def read(self) -> NodeSupply | None:
        """Return what the leader can buy; None if it is unknown."""
        text = await self._place.read()
        if not text:
            return None
        try:
            return from_wire(msgspec.json.decode(text), NodeSupply)
        except (msgspec.MsgspecError, RecursionError) as error:
            log.warning("%s: %s", self._place, error)
            return None

    async def run(self, view: EngineView) -> None:
        """Write it after each change, until cancelled."""
        while True:
            try:
                await self.save(view.node_supply)
            except KubeError as error:
                log.warning("%s: %s", self._place, error)
            await asyncio.sleep(_SAVE_S)

    async def save(self, supply: NodeSupply) -> None:
        """Write it, unless this text is there.

        Raises:
            KubeError: the text is not written.

        """
        if self._written is None:
            self._written = await self._place.read()
        text = msgspec.json.encode(to_wire(supply)).decode() if supply != _NOTHING else ""
        if len(text.encode()) > BYTES_MAX:
            log.warning("%s would have more than %d bytes", self._place, BYTES_MAX)
            text = ""
        if text != self._written:
            await self._place.write(text)
            self._written = text

    async def follow(self, observe: Callable[[NodeSupplySeen], None], known: NodeSupply) -> None:
        """Read it again and again, and observe each change, until cancelled."""
        while True:
            await asyncio.sleep(_FOLLOW_S)
            try:
                supply = await self.read() or _NOTHING
            except KubeError as error:
                log.warning("%s: %s", self._place, error)
                continue
            if supply != known:
                known = supply
                observe(NodeSupplySeen(supply))
