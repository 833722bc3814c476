"""Which gang a long computation is at: it reports this, and its watcher may stop it.

The core has no clock. So a computation asks at every step whether it may go on, and how long that
is the watcher's to know: the event loop in the scheduler; a simulation has no watcher.
"""

from dataclasses import dataclass

from gangsched.core.model.ids import GangId


class StoppedError(Exception):
    """A computation had to stop while it was at `gang` (None: at no gang)."""

    def __init__(self, gang: GangId | None) -> None:
        super().__init__(f"stopped at {gang or 'no gang'}")
        self.gang = gang


@dataclass(slots=True)
class Progress:
    """Written by a computation but for `stopped`, which its watcher sets.

    `gang` is the one it is at; `turns` counts the gangs it began with.
    """

    gang: GangId | None = None
    turns: int = 0
    stopped: bool = False

    def turn(self, gang: GangId) -> None:
        """Begin with another gang, and with others that are planned together with it."""
        self.at(gang)
        self.turns += 1

    def at(self, gang: GangId) -> None:
        """Go on with a gang of the same turn."""
        self.check()
        self.gang = gang

    def check(self) -> None:
        """Go on.

        Raises:
            StoppedError: it has to stop.

        """
        if self.stopped:
            raise StoppedError(self.gang)
