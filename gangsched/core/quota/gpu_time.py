"""The GPU time of an account; older use counts less."""

from dataclasses import dataclass, field
from math import log


@dataclass(slots=True)
class GpuTime:
    """GPU-seconds of one account: decayed with a half-life, and the plain sum in budget periods.

    `periods` maps the length of a period to its number since the epoch and the GPU-seconds spent in
    it. `total` is the GPU-seconds spent since this process started.
    """

    rate: float = 0.0
    at_s: float = 0.0
    historical_gpu_s: float = 0.0
    periods: dict[float, tuple[int, float]] = field(default_factory=dict)
    total: float = 0.0

    def advance_to(self, now_s: float, half_life_s: float) -> None:
        """Bring the account up to a moment."""
        passed_s = now_s - self.at_s
        if passed_s <= 0:
            return
        factor = 0.5 ** (passed_s / half_life_s)
        # The decayed sum from before, plus the integral of rate * 2^-(t/H) over the time since.
        self.historical_gpu_s = self.historical_gpu_s * factor + self.rate * half_life_s / log(
            2
        ) * (1 - factor)
        for period_s, (number, spent) in self.periods.items():
            present = int(now_s // period_s)
            if present == number:
                self.periods[period_s] = (number, spent + self.rate * passed_s)
            else:
                inside_s = min(passed_s, now_s - present * period_s)
                self.periods[period_s] = (present, self.rate * inside_s)
        self.total += self.rate * passed_s
        self.at_s = now_s
