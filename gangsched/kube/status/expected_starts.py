"""The first predicted start of each pending gang, for a comparison with its real start."""

from collections.abc import Container, Mapping

from gangsched.core.model.ids import GangId
from gangsched.core.planning.forecast import Prediction


class ExpectedStarts:
    """The first prediction of each pending gang, in seconds since the epoch."""

    def __init__(self) -> None:
        self._first_s: dict[GangId, float] = {}

    def learn(self, predictions: Mapping[GangId, Prediction], gangs: Container[GangId]) -> None:
        """Record the first predictions of existing gangs; forget other gangs."""
        self._first_s = {gang: at_s for gang, at_s in self._first_s.items() if gang in gangs}
        for gang, prediction in predictions.items():
            if prediction.start_s is not None and gang in gangs:
                self._first_s.setdefault(gang, prediction.start_s)

    def take(self, gang: GangId) -> float | None:
        """Return the first predicted start of a gang that starts now, and forget it."""
        return self._first_s.pop(gang, None)

    def gangs(self) -> set[GangId]:
        """Return the gangs with a prediction."""
        return set(self._first_s)
