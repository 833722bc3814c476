"""The calls of a pod's worker to the API server."""

from pathlib import Path

from gangsched.local.agent.spec import Json, Objects


class Reporter:
    """The calls of a worker to the API server; the agent implements them."""

    async def status(self, pod: Json, status: Json) -> None:
        """Write the pod's status."""
        raise NotImplementedError

    async def event(self, pod: Json, reason: str, message: str, kind: str = "Warning") -> None:
        """Write an Event about the pod."""
        raise NotImplementedError

    async def objects(self, pod: Json) -> Objects:
        """Read the ConfigMaps and Secrets of the pod."""
        raise NotImplementedError

    async def claim(self, pod: Json, name: str) -> Path:
        """Return the folder of a volume claim."""
        raise NotImplementedError

    async def token(self, pod: Json, source: Json) -> bytes:
        """Request a service account token for a projected volume."""
        raise NotImplementedError

    async def deleted(self, pod: Json) -> None:
        """Delete the pod's object without a grace period."""
        raise NotImplementedError
