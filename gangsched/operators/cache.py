"""What is known of one training job between two looks at it."""

from dataclasses import dataclass, field

from gangsched.core.jobs.model import JobEvent, Json


@dataclass(slots=True)
class JobCache:
    """What the watches know of one job."""

    body: Json | None = None
    pods: dict[str, Json] = field(default_factory=dict)
    services: dict[str, Json] = field(default_factory=dict)
    group: Json | None = None
    said: list[JobEvent] = field(default_factory=list)
    vanished: list[Json] = field(default_factory=list)
    deleted: set[str] = field(default_factory=set)
    heeded: frozenset[str] = frozenset()
    """Uids of pods whose leaving was acted upon."""

    went: set[str] = field(default_factory=set)
    """Uids of parts that went since the last look."""

    doubted: bool = False
    """A part of it went: it may have gone itself, unheard of."""

    held: str = ""
    """Why its gang may not be declared yet, as far as was seen at the last try."""

    documents: dict[tuple[str, str], Json] = field(default_factory=dict)
    """What was last written of objects that are not watched, by kind and name."""

    dropped: set[tuple[str, str]] = field(default_factory=set)
