"""The metrics of a trial: the value that counts, and the early-stopping rule (Katib)."""

from collections.abc import Callable, Mapping, Sequence

from gangsched.core.bounds import KEPT_VALUES
from gangsched.jobs.common.model import Json

UNAVAILABLE = "unavailable"

_EXTREMES: tuple[tuple[str, Callable[..., str]], ...] = (("min", min), ("max", max))

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


def merged_observation(known: Json, observed: Json) -> Json:
    """Return the metrics of a trial after another look at its log, which may have been rotated."""
    before = {metric["name"]: metric for metric in known.get("metrics") or []}
    return {"metrics": [_joined(before.get(new["name"]), new) for new in observed["metrics"]]}


def _joined(known: Json | None, new: Json) -> Json:
    if known is None or UNAVAILABLE in (known["latest"], new["latest"]):
        return new if known is None or known["latest"] == UNAVAILABLE else known
    return new | {key: pick(known[key], new[key], key=float) for key, pick in _EXTREMES}


def observation_log(series: Series) -> list[Json]:
    """Return the values of each metric in their order, in the form of the status of a trial.

    Of many values, KEPT_VALUES at even distances are kept, the first and the last among them.
    """
    return [{"name": name, "values": _thinned(values)} for name, values in series.items()]


def _thinned(values: Sequence[float]) -> list[str]:
    last, most = len(values) - 1, KEPT_VALUES.most - 1
    kept = values if last <= most else [values[i * last // most] for i in range(most + 1)]
    return [repr(value) for value in kept]


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
