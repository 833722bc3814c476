"""MIG: which instances one GPU can be cut into, and where.

A GPU has memory slices (8, or 4 on an A30); an instance takes `size` of them from one of its legal
starts. The starts imply the compute slices. Sources: `nvidia-smi mig -lgipp` of A100 and H100 as
in NVIDIA's MIG user guide; H200, B200 and GB200 have the same instance ids, totals and fractions.

Profile names alone do not give the shape (1g.10gb is two memory slices on an A100-40 and one on an
A100-80), so every question names the model.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from gangsched.core.model.nodes import Layout
from gangsched.core.model.pods import GPU

RESOURCE = "nvidia.com/mig-"
MEDIA = "+me"
"""Suffix of a profile with the media engines, of which a GPU has one set."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Memory slices one instance takes, its legal starts, and how many one GPU may have."""

    size: int
    starts: tuple[int, ...]
    most: int


@dataclass(frozen=True, slots=True)
class Model:
    """One GPU model: profile names and their shapes."""

    name: str
    slices: int
    profiles: tuple[tuple[str, Shape], ...]

    def shape(self, profile: str) -> Shape | None:
        """Return a profile's shape, or None where this model has no such profile."""
        return dict(self.profiles).get(profile)

    def names(self) -> str:
        """Return all profile names, for messages."""
        return ", ".join(name for name, _ in self.profiles)


_EIGHT = {
    "1g": Shape(1, (0, 1, 2, 3, 4, 5, 6), 7),
    "1g+me": Shape(1, (0, 1, 2, 3, 4, 5, 6), 1),
    "1g double": Shape(2, (0, 2, 4, 6), 4),
    "2g": Shape(2, (0, 2, 4), 3),
    "3g": Shape(4, (0, 4), 2),
    "4g": Shape(4, (0,), 1),
    "7g": Shape(8, (0,), 1),
}
_FOUR = (
    ("1g.6gb", Shape(1, (0, 1, 2, 3), 4)),
    ("1g.6gb+me", Shape(1, (0, 1, 2, 3), 1)),
    ("2g.12gb", Shape(2, (0, 2), 2)),
    ("2g.12gb+me", Shape(2, (0, 2), 1)),
    ("4g.24gb", Shape(4, (0,), 1)),
)


def _eight(name: str, one: str, double: str, two: str, three: str, seven: str) -> Model:
    """Make a model of eight slices from the memory sizes in its profile names."""
    names = {
        f"1g.{one}gb": "1g",
        f"1g.{one}gb+me": "1g+me",
        f"1g.{double}gb": "1g double",
        f"2g.{two}gb": "2g",
        f"3g.{three}gb": "3g",
        f"4g.{three}gb": "4g",
        f"7g.{seven}gb": "7g",
    }
    return Model(name, 8, tuple((profile, _EIGHT[kind]) for profile, kind in names.items()))


MODELS = {
    model.name: model
    for model in (
        _eight("A100-40GB", "5", "10", "10", "20", "40"),
        _eight("A100-80GB", "10", "20", "20", "40", "80"),
        _eight("H100-80GB", "10", "20", "20", "40", "80"),
        _eight("H100-NVL-94GB", "12", "24", "24", "47", "94"),
        _eight("H200-141GB", "18", "35", "35", "71", "141"),
        _eight("B200-180GB", "23", "45", "45", "90", "180"),
        _eight("GB200-186GB", "23", "47", "47", "93", "186"),
        _eight("GB200-189GB", "24", "47", "47", "95", "189"),
        Model("A30-24GB", 4, _FOUR),
    )
}

_PRODUCTS = (
    (r"A100.*80GB", "A100-80GB"),
    (r"A100", "A100-40GB"),
    (r"H100.*NVL", "H100-NVL-94GB"),
    (r"H100", "H100-80GB"),
    (r"H200", "H200-141GB"),
    (r"GB200", "GB200-186GB"),
    (r"B200", "B200-180GB"),
    (r"A30(?!\d)", "A30-24GB"),
)


def model_of(product: str, memory_mib: int = 0) -> Model | None:
    """Return the model that the label nvidia.com/gpu.product names, or None where it has no MIG.

    `memory_mib` (nvidia.com/gpu.memory) distinguishes the two GB200 driver generations.
    """
    bare = product.split("-MIG-", 1)[0]
    for pattern, name in _PRODUCTS:
        if re.search(pattern, bare):
            newer = name == "GB200-186GB" and memory_mib > 187 * 1024
            return MODELS["GB200-189GB" if newer else name]
    return None


def resource(profile: str) -> str:
    """Return the extended resource of a profile; the device plugin writes "." for "+"."""
    return RESOURCE + profile.replace("+", ".")


def profile_of(name: str) -> str | None:
    """Return the profile that an extended resource stands for, or None."""
    if not name.startswith(RESOURCE):
        return None
    return re.sub(r"\.(me)$", r"+\1", name.removeprefix(RESOURCE))


def offers(layout: Layout) -> dict[str, int]:
    """Return the resources one GPU of a layout offers."""
    if not layout:
        return {GPU: 1}
    return {resource(profile): count for profile, count in layout}


def instance_starts(model: Model, layout: Layout) -> tuple[tuple[str, int], ...] | None:
    """Return where each instance of a layout can start, or None where it is no legal layout."""
    wanted: list[tuple[str, Shape]] = []
    media = 0
    for profile, count in layout:
        shape = model.shape(profile)
        if shape is None or count > shape.most:
            return None
        media += count * profile.endswith(MEDIA)
        wanted.extend([(profile, shape)] * count)
    if media > 1:
        return None
    wanted.sort(key=lambda item: (-item[1].size, len(item[1].starts), item[0]))
    return _place(wanted, 0)


def _place(wanted: list[tuple[str, Shape]], taken: int) -> tuple[tuple[str, int], ...] | None:
    if not wanted:
        return ()
    (profile, shape), rest = wanted[0], wanted[1:]
    for start in shape.starts:
        mask = ((1 << shape.size) - 1) << start
        if taken & mask:
            continue
        rest_placed = _place(rest, taken | mask)
        if rest_placed is not None:
            return ((profile, start), *rest_placed)
    return None


@cache
def legal_layouts(model: Model) -> frozenset[Layout]:
    """Return every legal layout of a model, the empty one included."""
    legal: set[Layout] = {()}
    fresh: list[Layout] = [()]
    while fresh:
        layout = fresh.pop()
        for profile, _ in model.profiles:
            counts = dict(layout)
            counts[profile] = counts.get(profile, 0) + 1
            larger = tuple(sorted(counts.items()))
            if larger not in legal and instance_starts(model, larger) is not None:
                legal.add(larger)
                fresh.append(larger)
    return frozenset(legal)


@cache
def maximal_layouts(model: Model) -> tuple[Layout, ...]:
    """Return the legal layouts to which no instance can be added, sorted."""
    legal = legal_layouts(model)
    return tuple(sorted(layout for layout in legal if not any(_within(legal, layout, model))))


def _within(legal: frozenset[Layout], layout: Layout, model: Model) -> Iterator[bool]:
    for profile, _ in model.profiles:
        counts = dict(layout)
        counts[profile] = counts.get(profile, 0) + 1
        yield tuple(sorted(counts.items())) in legal


def full(model: Model, profile: str) -> Layout | None:
    """Return the layout with as many instances of one profile as fit (mig-parted's all-...)."""
    shape = model.shape(profile)
    return None if shape is None else ((profile, shape.most),)


_FRACTIONS = {"1g": 143, "2g": 286, "3g": 500, "4g": 571, "7g": 1000}
_QUARTERS = {"1g.6gb": 250, "2g.12gb": 500, "4g.24gb": 1000}


def profile_share_milli(profile: str) -> int:
    """Return what part of a GPU an instance is, in thousandths, for quotas.

    The share is the larger of the compute and memory fractions in the name; 1000 for an unknown
    name.
    """
    bare = profile.split(MEDIA, maxsplit=1)[0].split(".me", maxsplit=1)[0]
    return _QUARTERS.get(bare) or _FRACTIONS.get(bare.split(".")[0], 1000)
