"""Whether refused gangs are told the truth: what would help them, and when they start.

Each remedy is applied to the scene it was told in, and the gang planned anew with everything.
"""

from collections import Counter

from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack
from simulator.studies.remedies import a_scene, told, true

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
        for one in told(scene.play(POLICIES), POLICIES):
            refusals += 1
            for remedy in one.refusal.remedies:
                tried += 1
                kinds[remedy.kind] += 1
                if not true(scene, POLICIES, one, remedy):
                    wrong += 1
                    said = f"{remedy.kind}: {remedy.message}"
                    print(f"  seed {seed}, {one.refusal.gang}: {said}", flush=True)
    return {
        "refusals": float(refusals),
        "remedies_tried": float(tried),
        "remedies_tried_wrong": float(wrong),
        **{f"remedies_{kind}": float(count) for kind, count in sorted(kinds.items())},
    }
