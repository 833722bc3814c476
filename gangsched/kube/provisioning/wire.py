"""What objects of autoscalers have in common on the wire."""

import msgspec

from gangsched.kube.decoding.quantities import parse_timestamp
from gangsched.kube.decoding.schemas import Struct


class ObjectCondition(Struct):
    """A condition of an object, and when it changed."""

    type: str = ""
    status: str = ""
    message: str = ""
    last_transition_time: str = ""


class ListMetadata(msgspec.Struct):
    """Where a list continues."""

    continue_: str = msgspec.field(default="", name="continue")


def seconds_of(timestamp: str) -> float:
    """Return a time in seconds, 0 for one that is malformed."""
    try:
        return parse_timestamp(timestamp)
    except ValueError:
        return 0.0
