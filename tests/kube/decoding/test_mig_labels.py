"""MIG layouts from node labels: only unambiguous ones."""

import json

import pytest

from gangsched.kube.actuation import mig_writer
from gangsched.kube.decoding.cluster import mig_labels

LABELS = {
    "gangsched.io/mig": "dynamic",
    "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB",
    "nvidia.com/mig.config": "all-disabled",
    "nvidia.com/mig.config.state": "success",
}
SEVEN = (("1g.5gb", 7),)
WRITTEN = {
    "gangsched.io/mig-layout": json.dumps({"config": "gangsched-1", "layouts": [{"1g.5gb": 7}, {}]})
}
CASES = {
    "whole GPUs": ({}, {}, {"nvidia.com/gpu": 2}, ((), ())),
    "not opted in": ({"gangsched.io/mig": ""}, {}, {"nvidia.com/gpu": 2}, ()),
    "in the middle of it": (
        {"nvidia.com/mig.config.state": "pending"}, {}, {"nvidia.com/gpu": 2}, (),
    ),
    "a stock configuration": (
        {"nvidia.com/mig.config": "all-1g.5gb"},
        {},
        {"nvidia.com/mig-1g.5gb": 14},
        (SEVEN, SEVEN),
    ),
    "our own configuration": (
        {"nvidia.com/mig.config": "gangsched-1"},
        WRITTEN,
        {"nvidia.com/mig-1g.5gb": 7, "nvidia.com/gpu": 1},
        (SEVEN, ()),
    ),
    "the kubelet does not offer it yet": (
        {"nvidia.com/mig.config": "gangsched-1"}, WRITTEN, {"nvidia.com/gpu": 2}, (),
    ),
    "more than the layout says": (
        {}, {}, {"nvidia.com/gpu": 2, "nvidia.com/mig-2g.10gb": 1}, (),
    ),
    "a configuration of somebody else": (
        {"nvidia.com/mig.config": "custom"}, {}, {"nvidia.com/mig-1g.5gb": 7}, (),
    ),
    "a scribble": (
        {"nvidia.com/mig.config": "gangsched-1"},
        {"gangsched.io/mig-layout": "{"},
        {"nvidia.com/gpu": 2},
        (),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_layout_is_read_only_when_all_labels_agree(case):
    labels, annotations, allocatable, expected = CASES[case]
    assert mig_labels.node_layouts(LABELS | labels, annotations, allocatable) == expected


def test_equal_layouts_share_one_entry_with_a_label_s_length():
    name = mig_writer.config_name((SEVEN, ()))
    assert name == mig_writer.config_name((SEVEN, ()))
    assert name != mig_writer.config_name(((), SEVEN))
    assert len(name) <= 63
