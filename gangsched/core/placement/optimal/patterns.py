"""The maximal combinations of pods of several classes on one node: no pod can be added."""

from math import prod

import numpy as np
from numpy.typing import NDArray

from gangsched.core.cluster.node_table import Ints

PATTERNS_MAX = 64
"""Patterns of one class of nodes; beyond it the program would be too large to be worth it."""

Pattern = tuple[int, ...]
"""The number of pods of each class that one node takes together."""


class ProgramTooLargeError(Exception):
    """The program would be too large; the message says why."""


def maximal_patterns(
    free: Ints, vectors: list[Ints], steps: list[range], limit: int | None
) -> list[Pattern]:
    """Return the patterns to which no pod can be added on a node with these free resources.

    `vectors` has the request of one pod of each class, and `steps` the allowed numbers of its pods;
    `limit` bounds the pods in all.

    Raises:
        TooLargeError: there are too many.

    """
    if prod(len(step) for step in steps) > PATTERNS_MAX**2:  # in Python: an array's product wraps
        raise ProgramTooLargeError("too many ways to combine pods on one node")
    counted = [index for index, step in enumerate(steps) if len(step) > 1]
    fits = _fitting(free, [vectors[i] for i in counted], [steps[i] for i in counted], limit)
    combinations = np.argwhere(fits & ~_larger(fits)).tolist()
    if len(combinations) > PATTERNS_MAX:
        raise ProgramTooLargeError("too many ways to combine pods on one node")
    patterns = []
    for numbers in combinations:
        pattern = [0] * len(steps)
        for index, number in zip(counted, numbers, strict=True):
            pattern[index] = steps[index][number]
        if any(pattern):
            patterns.append(tuple(pattern))
    return patterns


def _fitting(
    free: Ints, vectors: list[Ints], steps: list[range], limit: int | None
) -> NDArray[np.bool_]:
    """Return for each combination of pods whether it fits; one axis per class."""
    shape = tuple(len(step) for step in steps)
    total = np.zeros((*shape, len(free)), dtype=np.int64)
    pods = np.zeros(shape, dtype=np.int64)
    for axis, (vector, step) in enumerate(zip(vectors, steps, strict=True)):
        along = np.array(step).reshape([-1 if at == axis else 1 for at in range(len(shape))])
        total += along[..., None] * vector
        pods += along
    fits: NDArray[np.bool_] = np.all((total <= free) | (total == 0), axis=-1)
    return fits if limit is None else fits & (pods <= limit)


def _larger(fits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return for each combination whether one with more pods of a class fits as well.

    If one with more pods fits, one with a single step more fits too: neighbours are enough.
    """
    larger = np.zeros_like(fits)
    for axis in range(fits.ndim):
        np.moveaxis(larger, axis, 0)[:-1] |= np.moveaxis(fits, axis, 0)[1:]
    return larger
