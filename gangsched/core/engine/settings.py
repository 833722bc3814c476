"""What the driver of an engine sets."""

from dataclasses import dataclass

from gangsched.core.engine.limits import Limits


@dataclass(slots=True)
class Settings:
    """Settings that all parts of an engine read; only its driver changes them."""

    limits: Limits
    driver_checks_unmodelled: bool = True
    """Whether the driver checks what the planner does not model."""
