"""What was learnt of run times, kept across restarts in one ConfigMap beside the scheduler."""

import asyncio
import json
import logging

from gangsched.core.accounts.estimate import History
from gangsched.kube.client import KubeClient
from gangsched.kube.errors import Conflict, Forbidden, KubeError, NotFound

log = logging.getLogger(__name__)

_KEY = "run-times.json"


class HistoryKeeper:
    """Reads and writes the ConfigMap `namespace/name`; a wrong one is reported and replaced."""

    def __init__(self, client: KubeClient, config_map: str) -> None:
        self._client = client
        self._namespace, _, self._name = config_map.partition("/")
        self._folder = f"/api/v1/namespaces/{self._namespace}/configmaps"
        self._kept = ""

    async def read(self, history: History) -> None:
        """Take over what an earlier process had learnt, where there is any."""
        try:
            found = json.loads(await self._client.get(f"{self._folder}/{self._name}"))
            self._kept = (found.get("data") or {}).get(_KEY, "")
            history.load(json.loads(self._kept or "{}"))
        except NotFound:
            return
        except Forbidden:
            log.info("ConfigMap %s/%s may not be read", self._namespace, self._name)
        except (ValueError, RecursionError) as error:
            log.warning("ConfigMap %s/%s, %s: %s", self._namespace, self._name, _KEY, error)

    async def run(self, history: History, interval_s: float) -> None:
        """Write whenever something was learnt, until cancelled."""
        while True:
            await asyncio.sleep(interval_s)
            text = json.dumps(history.data(), separators=(",", ":"))
            if text == self._kept:
                continue
            try:
                await self._write(text)
                self._kept = text
            except KubeError as error:
                log.warning("ConfigMap %s/%s: %s", self._namespace, self._name, error)

    async def _write(self, text: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self._name, "namespace": self._namespace},
            "data": {_KEY: text},
        }
        try:
            await self._client.patch(f"{self._folder}/{self._name}", {"data": body["data"]})
        except NotFound:
            try:
                await self._client.create(self._folder, body)
            except Conflict:
                await self._client.patch(f"{self._folder}/{self._name}", {"data": body["data"]})
