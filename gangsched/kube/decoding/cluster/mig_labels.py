"""MIG layouts of nodes, from NVIDIA's labels."""

import json
from collections.abc import Mapping

from gangsched.api import names
from gangsched.core.bounds import SHARED_GPUS
from gangsched.core.model import mig_profiles
from gangsched.core.model.nodes import Layout
from gangsched.core.model.pods import GPU
from gangsched.core.model.text import whole

CONFIG_LABEL = "nvidia.com/mig.config"


STATE_LABEL = "nvidia.com/mig.config.state"


PRODUCT_LABEL = "nvidia.com/gpu.product"


MEMORY_LABEL = "nvidia.com/gpu.memory"


Layouts = tuple[Layout, ...]


def failed(labels: Mapping[str, str]) -> bool:
    """Return whether the mig-manager failed to apply the node's last configuration."""
    return labels.get(STATE_LABEL) == "failed"


def node_layouts(
    labels: Mapping[str, str], annotations: Mapping[str, str], allocatable: Mapping[str, int]
) -> Layouts:
    """Return the layout of each GPU of a node that opted in, or () if it is not certain.

    It is certain if three things hold: gangsched knows the configuration, the mig-manager has
    applied it, and the kubelet offers exactly its instances.
    """
    if labels.get(names.MIG_LABEL) != names.MIG_DYNAMIC:
        return ()
    if labels.get(STATE_LABEL, "success") != "success":
        return ()
    configured = _known(labels, annotations, allocatable)
    offered: dict[str, int] = {}
    for layout in configured:
        for name, count in mig_profiles.offers(layout).items():
            offered[name] = offered.get(name, 0) + count
    mentioned = {
        name
        for name, count in allocatable.items()
        if count and (name == GPU or mig_profiles.profile_of(name))
    }
    same = all(allocatable.get(name, 0) == count for name, count in offered.items())
    return configured if same and mentioned <= offered.keys() else ()


def _known(
    labels: Mapping[str, str], annotations: Mapping[str, str], allocatable: Mapping[str, int]
) -> Layouts:
    config = labels.get(CONFIG_LABEL, "all-disabled")
    if names.MIG_LAYOUT_ANNOTATION in annotations:
        try:
            written = json.loads(annotations[names.MIG_LAYOUT_ANNOTATION])
            if written["config"] == config:
                return tuple(
                    tuple(sorted((str(name), int(count)) for name, count in layout.items()))
                    for layout in written["layouts"]
                )
        except (ValueError, TypeError, KeyError, AttributeError):
            return ()  # another writer changed our annotation: the layout is not known
    if config == "all-disabled":
        return ((),) * _gpus(allocatable.get(GPU, 0))
    memory = labels.get(MEMORY_LABEL, "")
    model = mig_profiles.model_of(labels.get(PRODUCT_LABEL, ""), whole(memory) or 0)
    full = None if model is None else mig_profiles.full(model, config.removeprefix("all-"))
    if full is None:
        return ()
    ((profile, each),) = full
    return (full,) * _gpus(allocatable.get(mig_profiles.resource(profile), 0) // each)


def _gpus(count: int) -> int:
    """Return how many GPUs to list one by one; 0 for a node with an absurd number of GPUs."""
    return count if count <= SHARED_GPUS.most else 0
