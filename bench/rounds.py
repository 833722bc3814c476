"""Rounds of 10,000 pods at 1,000 nodes: 500 gangs of 20, 20 of 500, one of 10,000; see bind.py.

The load is that of other schedulers' benchmarks (wg-batch, Kueue, Volcano: 1,000 KWOK nodes, pods
of one CPU).
"""

from bind import run_all
from bind_paths import PATHS, Load

LOADS = (
    Load("500x20", 500, 20, 0),
    Load("20x500", 20, 500, 0),
    Load("1x10000", 1, 10_000, 0),
)
_WAYS = ("raw", "direct", "extender", "native")


def run() -> dict[str, float]:
    """Run once; return flat figures and their ratios."""
    paths = tuple(path for path in PATHS if path.name in _WAYS)
    figures = run_all("bench-rounds", 1_000, LOADS, paths)
    for load in LOADS:
        direct, raw, extender, native = (
            figures[f"{way}_pods_per_s_{load.name}"]
            for way in ("direct", "raw", "extender", "native")
        )
        figures[f"direct_{load.name}_ratio"] = direct / raw
        if native:  # zero for the largest gang, which kube-scheduler does not bind in time
            figures[f"extender_vs_native_{load.name}"] = extender / native
    return figures
