"""Compares restarted engines, and forecasts of starts, with what happens in many histories.

A thousand histories of simulator/studies/restart.py, some of simulator/studies/start_estimates.py.
"""

import os
from concurrent.futures import ProcessPoolExecutor

from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.conservative import Conservative
from policies.drf import Drf
from policies.easy import Easy
from policies.fair import Fair
from policies.fifo import Fifo
from policies.greedy import Greedy
from policies.least_attained import LeastAttained
from policies.pack import Pack
from policies.priority_age import PriorityAge
from policies.shortest import Shortest
from policies.youngest import Youngest
from simulator.studies.restart import Comparison, RestartRun
from simulator.studies.start_estimates import Figures, ForecastRun

SEEDS = 1000
FORECAST_SEEDS = 12
POLICIES = (
    Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest()),
    Policies(PriorityAge(), Pack(), Fair(), Conservative(), Cheapest()),
    Policies(Fifo(), Pack(), Drf(), Greedy(), Youngest()),
    Policies(Shortest(), Pack(), Drf(), Easy(), Cheapest(solve=False)),
    Policies(LeastAttained(), Pack(), None, Easy(), Cheapest()),
)


def compare(seed: int) -> Comparison:
    """Compare engines in one history; the policies take turns."""
    return RestartRun(seed, POLICIES[seed % len(POLICIES)]).compare()


def forecast(seed: int) -> Figures:
    """Return the forecasts of one history, with the real starts."""
    return ForecastRun(seed, POLICIES[seed % len(POLICIES)]).measure()


def run() -> dict[str, float]:
    """Return flat figures."""
    total, starts = Comparison(), Figures()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for figures in pool.map(forecast, range(FORECAST_SEEDS)):
            starts.forecasts += figures.forecasts
            starts.silent += figures.silent
        for seed, history in enumerate(pool.map(compare, range(SEEDS), chunksize=10)):
            for difference in history.differences:
                print(f"  seed {seed}, {difference}", flush=True)
            total.differences += history.differences
            total.moments += history.moments
            total.whole += history.whole
            total.gangs += history.gangs
            total.waiting += history.waiting
            total.reservations += history.reservations
            total.backing_off += history.backing_off
    return {
        "histories": float(SEEDS),
        "moments": float(total.moments),
        "moments_whole": float(total.whole),
        "gangs": float(total.gangs),
        "gangs_waiting": float(total.waiting),
        "promises": float(total.reservations),
        "gangs_backing_off": float(total.backing_off),
        "restart_differences": float(len(total.differences)),
        **starts.flat(),
    }
