"""The settings of an Experiment's algorithms, with the checks of Katib's services."""

from collections.abc import Mapping

from gangsched.api.jobs.katib import Algorithm
from gangsched.core.bounds import CANDIDATES, FIRST_VALUES, TRIALS
from gangsched.core.model.text import shown, whole

MEDIANSTOP = "medianstop"
_SEED = {"random_state": (0, 2**32 - 1)}
_POINTS = (1, CANDIDATES.most)
_TPE = {**_SEED, "n_startup_trials": _POINTS, "n_ei_candidates": _POINTS}

_SETTINGS: Mapping[str, Mapping[str, tuple[int, int] | tuple[str, ...]]] = {
    "random": _SEED,
    "grid": _SEED,
    "sobol": _SEED,
    "tpe": _TPE,
    "multivariate-tpe": _TPE,
    "bayesianoptimization": {
        **_SEED,
        "n_initial_points": _POINTS,
        "base_estimator": ("GP", "RF", "ET", "GBRT"),
        "acq_func": ("gp_hedge", "LCB", "EI", "PI"),
        "acq_optimizer": ("auto", "sampling", "lbfgs"),
    },
    MEDIANSTOP: {"min_trials_required": (1, TRIALS.most), "start_step": (1, FIRST_VALUES.most)},
}
"""By algorithm and setting: its values, or its smallest and largest whole number."""


def algorithm_error(algorithm: Algorithm) -> str:
    """Return what is wrong with an algorithm's settings, or nothing."""
    known = _SETTINGS[algorithm.algorithmName]
    for setting in algorithm.algorithmSettings or []:
        allowed = known.get(setting.name)
        if allowed is None:
            names = ", ".join(known)
            return f"algorithmSettings: {shown(setting.name)} is not known; allowed are: {names}"
        where = f"algorithmSettings[{setting.name}] is {shown(setting.value)}"
        match allowed:
            case int(least), int(most):
                number = whole(setting.value, most)
                if number is None or number < least:
                    return f"{where}; it must be a whole number from {least} to {most}"
            case words if setting.value not in words:
                return f"{where}; it must be one of: {', '.join(map(str, words))}"
    return ""
