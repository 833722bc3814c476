"""Whether a restart changes anything, and whether gangs start when they were told.

A thousand histories of the one (simulator/studies/restart.py), some of the other
(simulator/studies/start_estimates.py).
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
from simulator.studies.restart import Compared, Watched
from simulator.studies.start_estimates import Figures, Foretold

SEEDS = 1000
TOLD_SEEDS = 12
POLICIES = (
    Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest()),
    Policies(PriorityAge(), Pack(), Fair(), Conservative(), Cheapest()),
    Policies(Fifo(), Pack(), Drf(), Greedy(), Youngest()),
    Policies(Shortest(), Pack(), Drf(), Easy(), Cheapest(solve=False)),
    Policies(LeastAttained(), Pack(), None, Easy(), Cheapest()),
)


def one(seed: int) -> Compared:
    """Return what one history shows; the policies take turns."""
    return Watched(seed, POLICIES[seed % len(POLICIES)]).compare()


def foretold(seed: int) -> Figures:
    """Return what was told in one history, with when gangs did start."""
    return Foretold(seed, POLICIES[seed % len(POLICIES)]).tell()


def run() -> dict[str, float]:
    """Return flat figures."""
    total, told = Compared(), Figures()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for known in pool.map(foretold, range(TOLD_SEEDS)):
            told.told += known.told
            told.silent += known.silent
        for seed, found in enumerate(pool.map(one, range(SEEDS), chunksize=10)):
            for difference in found.differences:
                print(f"  seed {seed}, {difference}", flush=True)
            total.differences += found.differences
            total.moments += found.moments
            total.whole += found.whole
            total.gangs += found.gangs
            total.waiting += found.waiting
            total.promises += found.promises
            total.backing_off += found.backing_off
    return {
        "histories": float(SEEDS),
        "moments": float(total.moments),
        "moments_whole": float(total.whole),
        "gangs": float(total.gangs),
        "gangs_waiting": float(total.waiting),
        "promises": float(total.promises),
        "gangs_backing_off": float(total.backing_off),
        "restart_differences": float(len(total.differences)),
        **told.flat(),
    }
