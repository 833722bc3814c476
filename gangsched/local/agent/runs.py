"""One container over all its runs, and its status in the API."""

from dataclasses import dataclass

from gangsched.local.agent.container import ContainerProcess, Ended
from gangsched.local.agent.spec import Json


@dataclass(slots=True)
class ContainerRuns:
    """One container over all its runs; `waiting` is a reason and a message.

    A sidecar is `ending` once the other containers have ended: it does not begin again.
    """

    spec: Json
    init: bool = False
    run: ContainerProcess | None = None
    last: Ended | None = None
    before_last: Ended | None = None
    restarts: int = 0
    waiting: tuple[str, str] = ("ContainerCreating", "")
    done: bool = False
    ending: bool = False

    @property
    def sidecar(self) -> bool:
        """Return whether it is an init container that keeps running (KEP-753)."""
        return self.init and self.spec.get("restartPolicy") == "Always"

    @property
    def well(self) -> bool:
        """Return whether the last run ended with exit code 0."""
        return self.run is None and self.last is not None and self.last.code == 0

    def status(self) -> Json:
        """Return the ContainerStatus."""
        running = self.run is not None
        if self.run is not None:
            state: Json = {"running": {"startedAt": self.run.started}}
        elif self.done and self.last is not None:
            state = {"terminated": _terminated(self.last)}
        else:
            reason, message = self.waiting
            state = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        earlier = self.last if not self.done else self.before_last
        return {
            "name": self.spec["name"],
            "image": self.spec.get("image", ""),
            "imageID": "",
            "ready": running or (self.init and self.done),
            "started": running,
            "restartCount": self.restarts,
            "state": state,
            "lastState": {"terminated": _terminated(earlier)} if earlier else {},
        }


def _terminated(ended: Ended) -> Json:
    return {
        "exitCode": ended.code,
        "reason": ended.reason,
        "message": ended.message,
        "startedAt": ended.started,
        "finishedAt": ended.finished,
    }
