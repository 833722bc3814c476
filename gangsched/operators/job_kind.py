"""The contract of every kind of job with the controllers, and the errors of a job."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from gangsched.core.bounds import SENTENCE_LETTERS
from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.owned_objects import Owned, Steps
from gangsched.kube.client.client import KubeClient
from gangsched.kube.client.errors import KubeError


class InvalidJobError(Exception):
    """The job cannot run as it is written; the message is what to change."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence[: SENTENCE_LETTERS.most])


@dataclass(frozen=True, slots=True)
class OwnerKind:
    """One kind of owner.

    `parts` are the API versions and kinds of what it owns; `step` reads an owner and returns what
    to do, or raises InvalidJobError. `look` is called before it, if the watches do not report all
    that it needs; it may raise the same, or BlockedError: then the step is retried.
    """

    api_version: str
    kind: str
    parts: tuple[tuple[str, str], ...]
    step: Callable[[Owned, Clock], Steps]
    read_unwatched: Callable[[KubeClient, Owned], Awaitable[Owned]] | None = None

    @property
    def plural(self) -> str:
        """Return the kind as paths have it."""
        return f"{self.kind.lower()}s"


class BlockedError(KubeError):
    """An obstacle that may go away; the message is the whole sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(409, sentence)


class RejectedError(Exception):
    """An object will never be accepted as it is; the message is the API server's sentence."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence[: SENTENCE_LETTERS.most])
