"""The MIG table agrees with a search of every combination of profiles."""

import json
from functools import cache
from itertools import combinations_with_replacement, product
from pathlib import Path

import pytest

from gangsched.core.model import mig_profiles

DATA = Path(__file__).parents[4] / "shared/data/mig/mig_profiles.json"
MODELS = ("A100-40GB", "A100-80GB", "H100-80GB", "H200-141GB", "B200-180GB")
# From the tables of NVIDIA's MIG user guide: memory slices, starts, most on one GPU.
GUIDE = {
    "1g": (1, range(7), 7),
    "1g+me": (1, range(7), 1),
    "1g double": (2, (0, 2, 4, 6), 4),
    "2g": (2, (0, 2, 4), 3),
    "3g": (4, (0, 4), 2),
    "4g": (4, (0,), 1),
    "7g": (8, (0,), 1),
}
NAMES = {
    "A100-40GB": ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"),
    "A100-80GB": ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "H100-80GB": ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
    "H200-141GB": (
        "1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb",
    ),
    "B200-180GB": (
        "1g.23gb", "1g.23gb+me", "1g.45gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb",
    ),
}  # fmt: skip


def fits(counts: tuple[int, ...]) -> bool:
    """Follow every way of filling the eight slices, as the sets of slices that may be taken."""
    ways = {0}
    for kind, count in zip(GUIDE, counts, strict=True):
        size, starts, _ = GUIDE[kind]
        masks = [((1 << size) - 1) << start for start in starts]
        for _ in range(count):
            ways = {taken | mask for taken in ways for mask in masks if not taken & mask}
    return bool(ways)


@cache
def judged() -> dict[tuple[int, ...], bool]:
    """Return for every combination whether it fits."""
    every = product(*(range(most + 2) for _, _, most in GUIDE.values()))
    most = [one for _, _, one in GUIDE.values()]
    return {
        counts: fits(counts)
        for counts in every
        if all(n <= one for n, one in zip(counts, most, strict=True))
    }


@pytest.mark.parametrize("name", MODELS)
def test_every_combination_is_judged_right(name):
    model = mig_profiles.MODELS[name]
    for counts, legal in judged().items():
        layout = tuple(sorted((p, n) for p, n in zip(NAMES[name], counts, strict=True) if n))
        found = mig_profiles.instance_starts(model, layout)
        assert (found is not None) == legal, layout
        if found is None:
            continue
        taken: set[int] = set()
        for profile, start in found:
            shape = model.shape(profile)
            slots = set(range(start, start + shape.size))
            assert start in shape.starts
            assert not taken & slots
            taken |= slots
    assert sum(judged().values()) == len(mig_profiles.legal_layouts(model)) == 128
    assert len(mig_profiles.maximal_layouts(model)) == 44


def test_one_instance_too_many_is_illegal():
    for name in MODELS:
        model = mig_profiles.MODELS[name]
        for profile, shape in model.profiles:
            assert mig_profiles.instance_starts(model, ((profile, shape.most),)) is not None
            assert mig_profiles.instance_starts(model, ((profile, shape.most + 1),)) is None


def test_nvidias_nineteen_configurations():
    """Position by position, the classic profiles make 19 full layouts, as the guide counts."""
    plain = [kind for kind in GUIDE if kind not in ("1g+me", "1g double")]
    spots = [(kind, s, GUIDE[kind][0]) for kind in plain for s in GUIDE[kind][1]]

    def free(layout):
        taken = {slot for _, start, size in layout for slot in range(start, start + size)}
        return [s for s in spots if not taken & set(range(s[1], s[1] + s[2]))]

    layouts = {frozenset()}
    grown = {frozenset()}
    while grown:
        grown = {layout | {spot} for layout in grown for spot in free(layout)}
        layouts |= grown
    assert len([layout for layout in layouts if not free(layout)]) == 19


def test_an_a30_has_four_slices():
    model = mig_profiles.model_of("NVIDIA-A30")
    assert mig_profiles.instance_starts(model, (("2g.12gb", 2),)) is not None
    assert mig_profiles.instance_starts(model, (("1g.6gb", 3), ("2g.12gb", 1))) is None
    pairs = combinations_with_replacement([name for name, _ in model.profiles], 2)
    assert all(
        mig_profiles.instance_starts(model, ((a, 2),)) is None
        for a, b in pairs
        if a == b and "4g" in a
    )


PRODUCTS = {
    "NVIDIA-A100-SXM4-40GB": "A100-40GB",
    "A100-SXM4-80GB": "A100-80GB",
    "NVIDIA-A100-80GB-PCIe": "A100-80GB",
    "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb": "A100-40GB",
    "NVIDIA-H100-80GB-HBM3": "H100-80GB",
    "NVIDIA-H100-NVL": "H100-NVL-94GB",
    "NVIDIA-H200": "H200-141GB",
    "NVIDIA-B200": "B200-180GB",
    "NVIDIA-GB200": "GB200-186GB",
    "NVIDIA-A30": "A30-24GB",
    "Tesla-T4": None,
    "NVIDIA-A3000": None,
}


@pytest.mark.parametrize("product_name", PRODUCTS)
def test_models_are_known_by_their_product_label(product_name):
    model = mig_profiles.model_of(product_name)
    assert (model.name if model else None) == PRODUCTS[product_name]


def test_a_name_means_another_shape_on_another_model():
    assert mig_profiles.MODELS["A100-40GB"].shape("1g.10gb").size == 2
    assert mig_profiles.MODELS["A100-80GB"].shape("1g.10gb").size == 1


def test_resources_and_profiles_translate_both_ways():
    assert mig_profiles.resource("1g.10gb+me") == "nvidia.com/mig-1g.10gb.me"
    assert mig_profiles.profile_of("nvidia.com/mig-1g.10gb.me") == "1g.10gb+me"
    assert mig_profiles.profile_of("nvidia.com/gpu") is None


def test_the_table_agrees_with_the_collected_one():
    if not DATA.exists():
        pytest.skip(f"{DATA.name} is not carried beside this checkout")
    table = json.loads(DATA.read_text())
    for name in MODELS:
        names = table["gpus"][name]["names"]
        for key, shape in table["geometry8"]["profiles"].items():
            own = mig_profiles.MODELS[name].shape(names[key])
            assert (own.size, list(own.starts), own.most) == (
                shape["size"], shape["starts"], shape["max"],
            )  # fmt: skip
