"""The settings of an Experiment's algorithms, with the checks of Katib's services."""

import math
from collections.abc import Mapping
from typing import TypeAlias

from gangsched.api.jobs.katib import Algorithm
from gangsched.core.bounds import CANDIDATES, FIRST_VALUES, PATH_LETTERS, TRIALS
from gangsched.core.model.text import shown, whole
from gangsched.jobs.katib.checkpoints import SETTING as FOLDER

MEDIANSTOP = "medianstop"
_NUMBER_LETTERS = 40
_SEED = {"random_state": (0, 2**32 - 1)}
_POINTS = (1, CANDIDATES.most)
_TPE = {**_SEED, "n_startup_trials": _POINTS, "n_ei_candidates": _POINTS}
_PATH, _NAME = "path", "name"
_SHARE = (0.0, 1.0)
_SMALLEST_POPULATION = 5

Allowed: TypeAlias = tuple[int, int] | tuple[float, float] | tuple[str, ...] | str
"""Words, the smallest and the largest number, or the form of a text."""

_SETTINGS: Mapping[str, Mapping[str, Allowed]] = {
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
    "cmaes": {**_SEED, "sigma": (0.001, 1.0), "restart_strategy": ("none", "ipop")},
    "hyperband": {
        **_SEED,
        "r_l": (1.0, 1e9),
        "eta": (2, 1000),
        "resource_name": _NAME,
        FOLDER: _PATH,
    },
    "pbt": {
        **_SEED,
        FOLDER: _PATH,
        "n_population": (_SMALLEST_POPULATION, TRIALS.most),
        "truncation_threshold": _SHARE,
        "resample_probability": _SHARE,
    },
    MEDIANSTOP: {"min_trials_required": (1, TRIALS.most), "start_step": (1, FIRST_VALUES.most)},
}
"""By algorithm and setting: what is allowed."""

_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "hyperband": ("r_l", "resource_name"),
    "pbt": (FOLDER, "n_population", "truncation_threshold"),
}


def algorithm_error(algorithm: Algorithm) -> str:
    """Return what is wrong with an algorithm's settings, or nothing."""
    known = _SETTINGS[algorithm.algorithmName]
    given = algorithm.algorithmSettings or []
    for setting in given:
        allowed = known.get(setting.name)
        if allowed is None:
            names = ", ".join(known)
            return f"algorithmSettings: {shown(setting.name)} is not known; allowed are: {names}"
        if rule := _broken_rule(setting.value, allowed):
            return f"algorithmSettings[{setting.name}] is {shown(setting.value)}; it must be {rule}"
    names_given = {setting.name for setting in given}
    for name in _REQUIRED.get(algorithm.algorithmName, ()):
        if name not in names_given:
            return f"algorithmSettings: {algorithm.algorithmName} needs the setting {name}"
    return ""


def _broken_rule(value: str, allowed: Allowed) -> str:
    """Return what a value must be, if it is not."""
    match allowed:
        case int(least), int(most):
            number = whole(value, most)
            wrong = number is None or number < least
            return f"a whole number from {least} to {most}" if wrong else ""
        case float(least), float(most):
            return "" if least <= _real(value) <= most else f"a number from {least:g} to {most:g}"
        case str() if allowed == _PATH:
            return (
                ""
                if _is_folder(value)
                else (
                    f"an absolute path of at most {PATH_LETTERS.most} letters without '..' and ':'"
                )
            )
        case str():
            return "" if value else "the name of a parameter"
        case words:
            return "" if value in words else f"one of: {', '.join(map(str, words))}"


def _real(text: str) -> float:
    try:
        return float(text) if len(text) <= _NUMBER_LETTERS else math.nan
    except ValueError:
        return math.nan


def _is_folder(text: str) -> bool:
    return (
        text.startswith("/")
        and text.strip("/") != ""
        and len(text) <= PATH_LETTERS.most
        and ".." not in text.split("/")
        and ":" not in text
    )
