"""How sure a mean of few runs is."""

import math
import statistics
from collections.abc import Sequence

from scipy import special  # scipy.stats takes a second to import


def half_interval(values: Sequence[float]) -> float:
    """Return half the 95 % interval of the mean of two or more values, by Student's t."""
    error = statistics.stdev(values) / math.sqrt(len(values))
    return error * float(special.stdtrit(len(values) - 1, 0.975))
