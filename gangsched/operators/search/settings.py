"""Which settings the algorithms of an Experiment have, as Katib's services check theirs."""

from collections.abc import Mapping

from gangsched.api.katib import Algorithm
from gangsched.core.numbers import whole
from gangsched.core.shown import shown

MEDIANSTOP = "medianstop"
_MOST = 2**32 - 1
_SEED = {"random_state": 0}
_TPE = {**_SEED, "n_startup_trials": 1, "n_ei_candidates": 1}

_SETTINGS: Mapping[str, Mapping[str, int | tuple[str, ...]]] = {
    "random": _SEED,
    "grid": _SEED,
    "sobol": _SEED,
    "tpe": _TPE,
    "multivariate-tpe": _TPE,
    "bayesianoptimization": {
        **_SEED,
        "n_initial_points": 1,
        "base_estimator": ("GP", "RF", "ET", "GBRT"),
        "acq_func": ("gp_hedge", "LCB", "EI", "PI"),
        "acq_optimizer": ("auto", "sampling", "lbfgs"),
    },
    MEDIANSTOP: {"min_trials_required": 1, "start_step": 1},
}
"""Of each algorithm: the words a setting may be, or the least whole number."""


def misset(algorithm: Algorithm) -> str:
    """Return what is wrong with an algorithm's settings, if anything is."""
    known = _SETTINGS[algorithm.algorithmName]
    for one in algorithm.algorithmSettings or []:
        allowed = known.get(one.name)
        if allowed is None:
            return (
                f"algorithmSettings: {shown(one.name)} is not known; there are: {', '.join(known)}"
            )
        where = f"algorithmSettings[{one.name}] is {shown(one.value)}"
        if isinstance(allowed, tuple):
            if one.value not in allowed:
                return f"{where}; it must be one of: {', '.join(allowed)}"
        else:
            number = whole(one.value, _MOST)
            if number is None or number < allowed:
                return f"{where}; it must be a whole number from {allowed} to {_MOST}"
    return ""
