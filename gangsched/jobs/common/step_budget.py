"""Bounds the objects that one step builds, by their number and their bytes."""

import json

from gangsched.core.bounds import BYTES_A_STEP, DOCUMENTS_A_STEP
from gangsched.jobs.common.model import Json


class StepBudget:
    """The objects and bytes that one step may still build; objects of a `kind` have one size."""

    def __init__(self) -> None:
        self._count = DOCUMENTS_A_STEP.most
        self._bytes = BYTES_A_STEP.most
        self._sizes: dict[str, int] = {}
        self.exhausted = False
        """Whether objects were left for the next step."""

    def may_build(self, kind: str) -> bool:
        """Return whether one more object may be built; the first object always may."""
        fits = self._count > 0 and self._sizes.get(kind, 0) <= self._bytes
        whole = self._count == DOCUMENTS_A_STEP.most
        self.exhausted = self.exhausted or not (fits or whole)
        return fits or whole

    def charge(self, kind: str, document: Json) -> None:
        """Charge an object that was built; the first of its kind counts as the size of all."""
        if kind not in self._sizes:
            self._sizes[kind] = len(json.dumps(document))
        self._count -= 1
        self._bytes -= self._sizes[kind]
