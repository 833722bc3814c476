"""Checks the remedies of refusals: applies each to its scene, and plans the gang again."""

from collections import Counter

from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack
from simulator.studies.remedies import a_scene, advised, works

REFUSALS = 2000
POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())


def run() -> dict[str, float]:
    """Return flat figures."""
    refusals = tried = wrong = 0
    kinds: Counter[str] = Counter()
    seed = 0
    while refusals < REFUSALS:
        seed += 1
        scene = a_scene(seed)
        for refused in advised(scene.play(POLICIES), POLICIES):
            refusals += 1
            for remedy in refused.refusal.remedies:
                tried += 1
                kinds[remedy.kind] += 1
                if not works(scene, POLICIES, refused, remedy):
                    wrong += 1
                    text = f"{remedy.kind}: {remedy.message}"
                    print(f"  seed {seed}, {refused.refusal.gang}: {text}", flush=True)
    return {
        "refusals": float(refusals),
        "remedies_tried": float(tried),
        "remedies_tried_wrong": float(wrong),
        **{f"remedies_{kind}": float(count) for kind, count in sorted(kinds.items())},
    }
