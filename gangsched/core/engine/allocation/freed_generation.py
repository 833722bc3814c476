"""How often capacity came free, so that plans can be compared with what they knew of."""


class FreedGeneration:
    """Counts the moments from which a gang that was refused may be placed.

    Whatever frees nodes or quota advances it; the pending queue compares it with the generation
    that its last accepted plan was made on. No part has to remember to set a flag.
    """

    def __init__(self) -> None:
        self.value = 0
        """It only grows."""

    def advance(self) -> None:
        """Record that gangs which were refused may be placed from now on."""
        self.value += 1
