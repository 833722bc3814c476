"""Conditions as `kubectl wait --for=condition` reads them."""

from pathlib import Path

import pytest
import yaml

CRDS = sorted((Path(__file__).parents[2] / "crds").glob("gangsched.io_*.yaml"))


def with_conditions() -> dict[str, dict]:
    """Return the schema of a condition, by the kinds that have conditions."""
    found = {}
    for path in CRDS:
        spec = yaml.safe_load(path.read_text())["spec"]
        for version in spec["versions"]:
            status = version["schema"]["openAPIV3Schema"]["properties"].get("status", {})
            if conditions := status.get("properties", {}).get("conditions"):
                found[spec["names"]["kind"]] = conditions["items"]
    return found


def as_stored(condition: dict, schema: dict) -> dict:
    """Return a condition as the API server stores it, with the defaults of its schema."""
    known = schema.get("properties", {})
    return {k: v["default"] for k, v in known.items() if "default" in v} | condition


@pytest.mark.parametrize("kind", with_conditions())
def test_kubectl_waits_for_a_condition_that_holds(kind):
    """A condition of an earlier generation than the object's counts as not observed yet."""
    ready = {"type": "Ready", "status": "True", "reason": "Valid", "message": ""}
    stored = as_stored(ready, with_conditions()[kind])
    assert stored.get("observedGeneration", 1) >= 1
