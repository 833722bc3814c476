"""Labels and annotations of our group: all that we use are known; unknown keys are reported."""

import re
from pathlib import Path

import gangsched
from gangsched.api import keys

SOURCES = Path(gangsched.__file__).parent
NO_KEYS = {"v1beta1", "v1alpha1", "cache-key", "journal", "simulation", "local", "topology"}
"""Versions, types of Secrets and documents, and names of others."""


def test_every_key_in_the_sources_is_known():
    found = set()
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        found |= set(re.findall(r"(?<![a-z.])gangsched\.io/([a-z][a-z-]*[a-z])\b(?!\d)", text))
    assert {f"gangsched.io/{key}" for key in found - NO_KEYS} - {"gangsched.io/v"} <= keys.KNOWN


def test_known_keys_and_keys_of_others_are_not_reported():
    known = dict.fromkeys(keys.KNOWN, "x")
    others = {"app": "x", "kueue.x-k8s.io/quue": "x", "topology.gangsched.io/rack": "r"}
    assert keys.unknown(known, others, None) == ""


def test_the_nearest_key_is_named_and_many_are_counted():
    assert keys.unknown({"gangsched.io/topology-requried": "rack"}) == (
        "'gangsched.io/topology-requried' (did you mean gangsched.io/topology-required?) is not "
        "known: no label or annotation is called so."
    )
    said = keys.unknown({f"gangsched.io/{letter * 60}": "x" for letter in "bcdefg"})
    assert "did you mean" not in said
    assert said.endswith("and 3 more are not known: no label or annotation is called so.")
    assert len(said) < 1024
