"""What a pod's worker asks of the API, and tells it."""

from pathlib import Path

from gangsched.local.agent.spec import Json, Objects


class Reporter:
    """What a worker tells the API; the agent implements it."""

    async def status(self, pod: Json, status: Json) -> None:
        """Write the pod's status."""
        raise NotImplementedError

    async def event(self, pod: Json, reason: str, message: str, kind: str = "Warning") -> None:
        """Write an Event about the pod."""
        raise NotImplementedError

    async def objects(self, pod: Json) -> Objects:
        """Fetch what the pod refers to."""
        raise NotImplementedError

    async def claim(self, pod: Json, name: str) -> Path:
        """Return the folder of a volume claim."""
        raise NotImplementedError

    async def token(self, pod: Json, source: Json) -> bytes:
        """Fetch a service account token for a projected volume."""
        raise NotImplementedError

    async def deleted(self, pod: Json) -> None:
        """Delete the pod's object for good."""
        raise NotImplementedError
