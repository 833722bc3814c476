"""How many objects one step builds: as many as a bound, and as its bytes, allow."""

import json

from gangsched.core.bounds import BYTES_A_STEP, DOCUMENTS_A_STEP
from gangsched.jobs.common.model import Json


class StepBudget:
    """What is left of one step for objects to be built; those of one `kind` are of one size."""

    def __init__(self) -> None:
        self._count = DOCUMENTS_A_STEP.most
        self._bytes = BYTES_A_STEP.most
        self._sizes: dict[str, int] = {}
        self.exhausted = False
        """Objects were left for the next step."""

    def may_build(self, kind: str) -> bool:
        """Return whether one more object may be built; the first of a step always may."""
        fits = self._count > 0 and self._sizes.get(kind, 0) <= self._bytes
        whole = self._count == DOCUMENTS_A_STEP.most
        self.exhausted = self.exhausted or not (fits or whole)
        return fits or whole

    def charge(self, kind: str, document: Json) -> None:
        """Charge an object that was built; the first of its kind is the size of all."""
        if kind not in self._sizes:
            self._sizes[kind] = len(json.dumps(document))
        self._count -= 1
        self._bytes -= self._sizes[kind]
