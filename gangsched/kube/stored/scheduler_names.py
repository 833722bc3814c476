"""The scheduler names that the leader serves, stored for commands that read pods."""

import asyncio
import json
import logging
from collections.abc import Collection

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.kube.stored.config_map import ConfigMapEntry

log = logging.getLogger(__name__)

_AGAIN_S = 60.0


class ServedNames:
    """Stores the scheduler names of the leader in the ConfigMap `namespace/name`."""

    def __init__(self, client: KubeClient, config_map: str) -> None:
        self._place = ConfigMapEntry(client, config_map, "scheduler-names.json")

    async def read(self) -> frozenset[str]:
        """Return the names that the leader serves; an empty set if they are unknown."""
        try:
            stored = json.loads(await self._place.read() or "[]")
        except (ValueError, RecursionError) as error:
            log.warning("%s: %s", self._place, error)
            return frozenset()
        listed = stored if isinstance(stored, list) else []
        return frozenset(name for name in listed if isinstance(name, str) and name)

    async def run(self, names: Collection[str]) -> None:
        """Write the names once, then wait until cancelled."""
        while True:
            try:
                if await self.read() != frozenset(names):
                    await self._place.write(json.dumps(sorted(names)))
                await asyncio.get_running_loop().create_future()
            except KubeError as error:
                log.warning("%s: %s", self._place, error)
                await asyncio.sleep(_AGAIN_S)
