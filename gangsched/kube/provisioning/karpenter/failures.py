"""Which pools did not make their nodes; it is lost with the process."""

from dataclasses import dataclass, field

_RETRY_MAX_S = 3600.0


@dataclass(slots=True)
class PoolFailures:
    """Leaves out pools for `retry_s` seconds, twice as long after each further failure."""

    retry_s: float
    _counts: dict[str, int] = field(default_factory=dict)
    _until_s: dict[str, float] = field(default_factory=dict)

    def add(self, pool: str, now_s: float) -> None:
        """Record that nodes of a pool did not come."""
        count = self._counts[pool] = self._counts.get(pool, 0) + 1
        pause_s = self.retry_s * 2.0 ** min(count - 1, 20)
        self._until_s[pool] = now_s + min(pause_s, _RETRY_MAX_S)

    def forget(self, pool: str) -> None:
        """Record that nodes of a pool came; it is left out no longer than it is now."""
        self._counts.pop(pool, None)

    def leaves_out(self, pool: str, now_s: float) -> bool:
        """Return whether no nodes of a pool are bought now."""
        return pool in self.retries_s(now_s)

    def retries_s(self, now_s: float) -> dict[str, float]:
        """Return when the pools that are left out now are tried again."""
        return {pool: until_s for pool, until_s in self._until_s.items() if now_s < until_s}
