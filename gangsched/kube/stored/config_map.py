"""Texts that survive restarts: each is a key of one ConfigMap beside the scheduler."""

import json
import logging

from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import Conflict, Forbidden, NotFound

log = logging.getLogger(__name__)


class ConfigMapEntry:
    """One key of the ConfigMap `namespace/name`."""

    def __init__(self, client: KubeClient, config_map: str, key: str) -> None:
        self._client = client
        self._namespace, _, self._name = config_map.partition("/")
        self._folder = f"/api/v1/namespaces/{self._namespace}/configmaps"
        self._key = key

    def __str__(self) -> str:
        """Return the name of the entry for the log."""
        return f"ConfigMap {self._namespace}/{self._name}, {self._key}"

    async def read(self) -> str:
        """Return the text; an empty string if it does not exist or may not be read."""
        try:
            config_map = json.loads(await self._client.get(f"{self._folder}/{self._name}"))
        except NotFound:
            return ""
        except Forbidden:
            log.info("ConfigMap %s/%s may not be read", self._namespace, self._name)
            return ""
        except (ValueError, RecursionError) as error:
            log.warning("%s: %s", self, error)
            return ""
        return str((config_map.get("data") or {}).get(self._key, ""))

    async def write(self, text: str) -> None:
        """Write the text; other keys stay as they are.

        Raises:
            KubeError: the text is not written.

        """
        data = {"data": {self._key: text}}
        metadata = {"name": self._name, "namespace": self._namespace}
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **data}
        try:
            await self._client.patch(f"{self._folder}/{self._name}", data)
        except NotFound:
            try:
                await self._client.create(self._folder, body)
            except Conflict:
                await self._client.patch(f"{self._folder}/{self._name}", data)
