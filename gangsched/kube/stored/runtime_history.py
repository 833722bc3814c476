"""The learned run times of jobs, kept across restarts in a ConfigMap beside the scheduler."""

import asyncio
import json
import logging

from gangsched.core.quota.runtime_history import RuntimeHistory
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError
from gangsched.kube.stored.config_map import ConfigMapEntry

log = logging.getLogger(__name__)


class RuntimeHistoryStore:
    """Reads and writes the ConfigMap `namespace/name`; a malformed text is logged and replaced."""

    def __init__(self, client: KubeClient, config_map: str) -> None:
        self._place = ConfigMapEntry(client, config_map, "run-times.json")
        self._kept = ""

    async def read(self, history: RuntimeHistory) -> None:
        """Merge the run times that an earlier process stored."""
        self._kept = await self._place.read()
        try:
            history.merge_json(json.loads(self._kept or "{}"))
        except (ValueError, RecursionError) as error:
            log.warning("%s: %s", self._place, error)

    async def run(self, history: RuntimeHistory, interval_s: float) -> None:
        """Write the run times whenever they changed, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            text = json.dumps(history.to_json(), separators=(",", ":"))
            if text == self._kept:
                continue
            try:
                await self._place.write(text)
                self._kept = text
            except KubeError as error:
                log.warning("%s: %s", self._place, error)
