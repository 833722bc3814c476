"""Remedies of refused gangs work: each is applied, and the gang is planned again."""

from effort import seeds

from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack
from simulator.studies.remedies import a_scene, advised, works

POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())


def test_every_remedy_is_true():
    tried = 0
    for seed in seeds(100):
        scene = a_scene(seed)
        for one in advised(scene.play(POLICIES), POLICIES):
            for remedy in one.refusal.remedies:
                tried += 1
                said = f"seed {seed}: {one.refusal.gang}: {remedy}"
                assert works(scene, POLICIES, one, remedy), said
    assert tried > 10


def test_moves_are_proposed_only_if_all_gangs_start_again():
    """Without a trial the last three are told of moves that quotas, or others, make untrue."""
    moved = 0
    for seed in (36, 54, 123, 161, 222):
        scene = a_scene(seed)
        for one in advised(scene.play(POLICIES), POLICIES):
            for remedy in one.refusal.remedies:
                moved += remedy.kind == "move"
                assert works(scene, POLICIES, one, remedy), f"seed {seed}: {remedy}"
    assert moved == 2
