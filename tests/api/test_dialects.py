"""Every annotation dialect for placement, and the errors for contradictions."""

import pytest

from gangsched.api import dialects

K, A, V = dialects.KUEUE, dialects.KAI, dialects.VOLCANO
SAID = {
    "ours": (
        {
            "gangsched.io/topology-required": "rack",
            "gangsched.io/slices": '[{"level": "host", "size": 2}]',
            "gangsched.io/spread": "rack=4, host=2",
            "gangsched.io/gpu-kinds": "H100, A100",
            "gangsched.io/movable": "true",
        },
        {
            "topology": {
                "required": "rack",
                "slices": [{"level": "host", "size": 2}],
                "spread": [{"level": "rack", "maxPods": 4}, {"level": "host", "maxPods": 2}],
            },
            "gpuKinds": ["H100", "A100"],
            "movable": True,
        },
    ),
    "kueue": (
        {
            f"{K}podset-preferred-topology": "cloud/block",
            f"{K}podset-slice-required-topology": "cloud/rack",
            f"{K}podset-slice-size": "4",
        },
        {
            "topology": {
                "preferred": "cloud/block",
                "slices": [{"level": "cloud/rack", "size": 4}],
            }
        },
    ),
    "kueue, two layers": (
        {
            f"{K}podset-slice-required-topology-constraints": (
                '[{"topology": "cloud/block", "size": 8}, {"topology": "cloud/rack", "size": 2}]'
            )
        },
        {
            "topology": {
                "slices": [
                    {"level": "cloud/block", "size": 8},
                    {"level": "cloud/rack", "size": 2},
                ]
            }
        },
    ),
    "kueue, unconstrained": ({f"{K}podset-unconstrained-topology": "true"}, {}),
    "kai": (
        {
            f"{A}topology": "fabric",
            f"{A}topology-required-placement": "spine",
            f"{A}segment-size": "2",
            f"{A}segment-topology-required-placement": "rack",
        },
        {
            "topology": {
                "name": "fabric",
                "required": "spine",
                "slices": [{"level": "rack", "size": 2}],
            }
        },
    ),
    "volcano, hard": (
        {f"{V}network-topology-mode": "hard", f"{V}network-topology-highest-tier": "2"},
        {"topology": {"required": "tier-2"}},
    ),
    "volcano, soft": (
        {f"{V}network-topology-mode": "soft", f"{V}network-topology-highest-tier": "1"},
        {"topology": {"preferred": "tier-1"}},
    ),
    "jobset": (
        {dialects.JOBSET: "cloud/rack"},
        {"topology": {"required": "cloud/rack", "exclusive": "cloud/rack"}},
    ),
    "two that agree": (
        {
            f"{K}podset-required-topology": "cloud/rack",
            "gangsched.io/topology-required": "cloud/rack",
        },
        {"topology": {"required": "cloud/rack"}},
    ),
    "somebody else's": ({"example.com/topology": "rack"}, {}),
}


@pytest.mark.parametrize("case", SAID)
def test_annotations_become_fields_of_our_spec(case):
    annotations, fields = SAID[case]
    assert dialects.from_annotations(annotations, "Job a/b") == fields


WRONG = {
    "two that disagree": (
        {
            f"{K}podset-required-topology": "rack",
            f"{A}topology-required-placement": "block",
        },
        (
            "Job a/b: kueue.x-k8s.io/podset-required-topology asks for topology.required 'rack', "
            "and kai.scheduler/topology-required-placement for 'block'; they must agree"
        ),
    ),
    "half a slice": (
        {f"{K}podset-slice-size": "4"},
        (
            "Job a/b: annotation kueue.x-k8s.io/podset-slice-size needs "
            "kueue.x-k8s.io/podset-slice-required-topology beside it"
        ),
    ),
    "no number": (
        {f"{A}segment-topology-required-placement": "rack", f"{A}segment-size": "many"},
        (
            "Job a/b: annotation kai.scheduler/segment-size is 'many'; it must be a whole number "
            "from 1 to 999999999"
        ),
    ),
    "a number that plans cannot hold": (
        {"gangsched.io/max-runtime-seconds": "1234567890"},
        (
            "Job a/b: annotation gangsched.io/max-runtime-seconds is '1234567890'; it must be a "
            "whole number from 1 to 999999999"
        ),
    ),
    "a size beyond numbers": (
        {"gangsched.io/slices": '[{"level": "rack", "size": 1e999}]'},
        (
            'Job a/b: annotation gangsched.io/slices is \'[{"level": "rack", "size": 1e999}]\'; '
            'it must be JSON such as [{"level": "rack", "size": 4}]'
        ),
    ),
    "no JSON": (
        {"gangsched.io/slices": "rack:4"},
        (
            "Job a/b: annotation gangsched.io/slices is 'rack:4'; it must be JSON such as "
            '[{"level": "rack", "size": 4}]'
        ),
    ),
    "an unknown mode": (
        {f"{V}network-topology-mode": "firm"},
        "Job a/b: annotation volcano.sh/network-topology-mode is 'firm'; it must be hard or soft",
    ),
    "an empty name in a list": (
        {"gangsched.io/gpu-kinds": "H100,,A100"},
        (
            "Job a/b: annotation gangsched.io/gpu-kinds is 'H100,,A100'; it must be names with "
            "commas between"
        ),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_contradiction_is_one_sentence(case):
    annotations, sentence = WRONG[case]
    with pytest.raises(dialects.DialectError) as error:
        dialects.from_annotations(annotations, "Job a/b")
    assert str(error.value) == sentence


def test_every_annotation_that_is_read_is_listed():
    for annotations, fields in SAID.values():
        assert bool(fields) == (not dialects.KEYS.isdisjoint(annotations))
    for annotations, _ in WRONG.values():
        assert not dialects.KEYS.isdisjoint(annotations)


def test_peers_own_objects_are_understood():
    kai = {"topology": "t", "requiredTopologyLevel": "rack", "preferredTopologyLevel": "host"}
    assert dialects.from_kai(kai, "PodGroup a/b") == {
        "topology": {"name": "t", "required": "rack", "preferred": "host"}
    }
    assert dialects.from_volcano({"mode": "soft", "highestTierAllowed": 2}, "x") == {
        "topology": {"preferred": "tier-2"}
    }
    assert dialects.from_volcano({"highestTierName": "rack"}, "x") == {
        "topology": {"required": "rack"}
    }
    assert dialects.from_upstream({"topology": [{"key": "zone"}]}, "x") == {
        "topology": {"required": "zone"}
    }
    with pytest.raises(dialects.DialectError, match="has 2 keys, not 1"):
        dialects.from_upstream({"topology": [{"key": "a"}, {"key": "b"}]}, "x")


def test_an_annotation_may_repeat_the_spec_but_not_contradict_it():
    spec = {"minMember": 2, "topology": {"required": "rack", "spread": []}}
    asked = {"topology": {"required": "rack", "preferred": "host"}}
    merged = dialects.merge(spec, asked, "PodGroup a/b")
    assert merged["topology"] == {"required": "rack", "spread": [], "preferred": "host"}
    with pytest.raises(dialects.DialectError, match="they must agree"):
        dialects.merge(spec, {"topology": {"required": "block"}}, "PodGroup a/b")
