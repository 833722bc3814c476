"""The metrics of a trial: the value that counts, and the early-stopping rule (Katib)."""

from collections.abc import Mapping, Sequence

from gangsched.jobs.common.model import Json

UNAVAILABLE = "unavailable"

Series = dict[str, list[float]]
"""The values of each metric, in the order of the log."""


def observation(series: Series) -> Json:
    """Return the metrics of a trial in the form of its status."""
    return {
        "metrics": [
            {
                "name": name,
                "min": repr(min(values)) if values else UNAVAILABLE,
                "max": repr(max(values)) if values else UNAVAILABLE,
                "latest": repr(values[-1]) if values else UNAVAILABLE,
            }
            for name, values in series.items()
        ]
    }


def value_of(observed: Json, name: str, strategy: str) -> float | None:
    """Return the value of a metric that counts, or None if there is none."""
    for metric in observed.get("metrics") or []:
        if metric["name"] == name and metric[strategy] != UNAVAILABLE:
            return float(metric[strategy])
    return None


def strategies(objective: Json) -> dict[str, str]:
    """Return which value counts, by metric; the default is the best value for the objective."""
    best = "max" if objective["type"] == "maximize" else "min"
    names = [objective["objectiveMetricName"], *(objective.get("additionalMetricNames") or [])]
    given = {item["name"]: item["value"] for item in objective.get("metricStrategies") or []}
    return {name: given.get(name, best) for name in names}


def breaks_rule(rule: Mapping[str, str | int], values: Sequence[float], objective: Json) -> bool:
    """Return whether a trial has to stop: its best value breaks a rule after `startStep` values."""
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
