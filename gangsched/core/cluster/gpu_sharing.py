"""GPUs one by one: which of a node's GPUs are shared, and how much of each is taken.

A shared GPU counts as one whole GPU taken (`used` of nvidia.com/gpu), whichever pods share it, so
that whole and shared pods meet in one number. The index of a device is ours; which physical GPU
stands behind it is the device plugin's choice.
"""

from itertools import islice

import numpy as np
from numpy.typing import NDArray

from gangsched.core.bounds import SHARED_GPUS
from gangsched.core.model.nodes import Node
from gangsched.core.model.pods import MILLI, GpuShare

Ints = NDArray[np.int64]
Devices = tuple[int, ...]


class SharedGpus:
    """The shared GPUs of every node: taken thousandths by row and device index."""

    def __init__(self) -> None:
        self._taken: dict[int, dict[int, int]] = {}

    def copy(self) -> "SharedGpus":
        """Return an independent copy."""
        other = SharedGpus()
        other._taken = dict(self._taken)  # its dicts are replaced, never written
        return other

    def follow(self, other: "SharedGpus", rows: list[int]) -> None:
        """Copy the shared GPUs of some rows from another instance."""
        for row in rows:
            there = other.of(row)
            if there:
                self._taken[row] = there
            else:
                self._taken.pop(row, None)

    def of(self, row: int) -> dict[int, int]:
        """Return taken thousandths by device index on a row."""
        return self._taken.get(row, {})

    def choose(self, row: int, milli: int, devices: int, idle: int, gpus: int) -> Devices:
        """Return the devices that fit most tightly; new ones only if no shared device fits.

        A pod with parts of several GPUs gets the emptiest instead, `idle` ones included: its parts
        need distinct GPUs, and only so do as many such pods fit as `capacities` counts. A
        pod that runs on a full node gets the emptiest as well, full as they are: a node has `gpus`,
        and no pod may be sent to another.
        """
        taken = self.of(row)
        fresh = (index for index in range(min(gpus, SHARED_GPUS.most)) if index not in taken)
        fitting = sorted(
            (index for index, used in taken.items() if used + milli <= MILLI and index < gpus),
            key=lambda index: (-taken[index], index),
        )
        if devices > 1:
            fitting = [*islice(fresh, min(max(idle, 0), devices)), *reversed(fitting)]
        fitting += islice(fresh, max(devices - len(fitting), 0))
        if len(fitting) < devices:
            full = [index for index in taken if index < gpus and index not in fitting]
            fitting += sorted(full, key=lambda index: (taken[index], index))
        return tuple(sorted(fitting[:devices]))

    def can_hold(self, row: int, milli: int, devices: Devices, count: int, gpus: int) -> bool:
        """Return whether a share fits on the devices that are recorded for it.

        They have to be so many, and GPUs that a node with `gpus` has, with enough free.
        """
        taken = self.of(row)
        fits = all(0 <= index < gpus and taken.get(index, 0) + milli <= MILLI for index in devices)
        return fits and len(set(devices)) == len(devices) == count

    def add_share(self, row: int, milli: int, devices: Devices) -> int:
        """Count a share; return how many GPUs became shared by it."""
        taken = dict(self.of(row))
        before = len(taken)
        for index in devices:
            taken[index] = taken.get(index, 0) + milli
        if taken:
            self._taken[row] = taken
        return len(taken) - before

    def remove_share(self, row: int, milli: int, devices: Devices) -> int:
        """Release a share; return how many GPUs became whole by it."""
        taken = dict(self.of(row))
        before = len(taken)
        for index in devices:
            taken[index] -= milli
            if taken[index] <= 0:
                del taken[index]
        if taken:
            self._taken[row] = taken
        else:
            self._taken.pop(row, None)
        return before - len(taken)

    def overfull(self, row: int) -> bool:
        """Return whether a GPU of the row is overcommitted."""
        return any(taken > MILLI for taken in self.of(row).values())

    def forget(self, row: int) -> None:
        """Forget the row of a deleted node."""
        self._taken.pop(row, None)

    def capacities(self, rows: Ints, idle: Ints, nodes: list[Node | None], share: GpuShare) -> Ints:
        """Return how many more such shares the GPUs of each row take, shape as `rows`.

        `idle` counts the GPUs of each row that no pod has.
        """
        if share.memory_mib:
            asked = [share_milli(nodes[row], share) or 0 for row in rows]
            milli = np.array(asked, dtype=np.int64)
        else:
            milli = np.full(len(rows), share.milli, dtype=np.int64)
        each = np.where(milli > 0, MILLI // np.maximum(milli, 1), 0)
        counts: Ints = np.where(idle >= share.devices, idle * each // share.devices, 0)
        for position, row in enumerate(rows):
            if int(row) in self._taken and each[position] and idle[position] >= 0:
                counts[position] = self._mixed(
                    int(row), int(idle[position]), int(milli[position]), share.devices
                )
        return counts

    def _mixed(self, row: int, idle: int, milli: int, devices: int) -> int:
        """Count on a row where some GPUs are shared already."""
        shared = [max(MILLI - used, 0) // milli for used in self.of(row).values()]
        each = MILLI // milli
        # Each pod needs distinct devices, so one device serves at most one share of each pod. If
        # so many pods fit, fewer do; neither GPUs nor pods are counted one by one.
        least, most = 0, (sum(shared) + idle * each) // devices
        while least < most:
            count = (least + most + 1) // 2
            served = sum(min(count, slot) for slot in shared) + idle * min(count, each)
            if served >= count * devices:
                least = count
            else:
                most = count - 1
        return least


def share_milli(node: Node | None, share: GpuShare) -> int | None:
    """Return the thousandths of one GPU of this node that a share comes to.

    None where it asks for memory and the node does not say how much its GPUs have, or has less.
    """
    if share.memory_mib:
        memory = node.gpu_memory_mib if node is not None else 0
        milli = -(-share.memory_mib * MILLI // memory) if memory else MILLI + 1
    else:
        milli = share.milli
    return milli if 0 < milli <= MILLI else None
