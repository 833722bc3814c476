"""What a trial's log says of its metrics (Katib's StdOut collector, and its rule of stopping)."""

import re
from collections.abc import Iterable, Mapping, Sequence

from gangsched.core.jobs.model import Json

FILTER = r"([\w|-]+)\s*=\s*([+-]?\d*(\.\d+)?([Ee][+-]?\d+)?)"
"""A name, an equals sign and a number: Katib's default filter."""

UNAVAILABLE = "unavailable"

Series = dict[str, list[float]]
"""The values of each metric, in the order of the log."""


def read(lines: Iterable[str], names: Sequence[str], filters: Sequence[str] = ()) -> Series:
    """Return the values of some metrics in a log; what is not a number is passed over.

    Args:
        lines: the log.
        names: the metrics that are looked for.
        filters: expressions whose first two groups are name and value.

    """
    patterns = [re.compile(one) for one in filters or (FILTER,)]
    series: Series = {name: [] for name in names}
    for line in lines:
        for pattern in patterns:
            for found in pattern.finditer(line):
                name, value = found.group(1).strip(), found.group(2).strip()
                if name in series:
                    try:
                        series[name].append(float(value))
                    except ValueError:
                        continue
    return series


def observation(series: Series) -> Json:
    """Return what a Trial's status says of its metrics."""
    return {
        "metrics": [
            {
                "name": name,
                "min": _text(min(values)) if values else UNAVAILABLE,
                "max": _text(max(values)) if values else UNAVAILABLE,
                "latest": _text(values[-1]) if values else UNAVAILABLE,
            }
            for name, values in series.items()
        ]
    }


def value_of(observed: Json, name: str, strategy: str) -> float | None:
    """Return the value of a metric that counts, or None where there is none."""
    for metric in observed.get("metrics") or []:
        if metric["name"] == name and metric[strategy] != UNAVAILABLE:
            return float(metric[strategy])
    return None


def strategies(objective: Json) -> dict[str, str]:
    """Return which value counts, by metric; by default the best in the objective's sense."""
    best = "max" if objective["type"] == "maximize" else "min"
    listed = [objective["objectiveMetricName"], *(objective.get("additionalMetricNames") or [])]
    given = {one["name"]: one["value"] for one in objective.get("metricStrategies") or []}
    return {name: given.get(name, best) for name in listed}


def breaks(rule: Mapping[str, str | int], values: Sequence[float], objective: Json) -> bool:
    """Tell whether a trial has to stop: its best after `startStep` values falls short of a rule."""
    start = int(rule.get("startStep") or 0)
    if not values or len(values) < start:
        return False
    best = max(values) if objective["type"] == "maximize" else min(values)
    bound = float(rule["value"])
    match rule["comparison"]:
        case "less":
            return best < bound
        case "greater":
            return best > bound
        case _:
            return best == bound


def _text(value: float) -> str:
    return repr(value)
