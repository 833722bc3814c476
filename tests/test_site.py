"""The tree of the documentation's site is complete; `make docs` builds it."""

import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml

from gangsched import policy_api
from gangsched.config import POLICY_GROUPS, SchedulerConfig
from gangsched.core.model.refusal import Reason

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def tree():
    """What docs/collect.py writes, by path; it fails where a link leads nowhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        import collect

        yield collect.Tree().files()
        for name in ("bounds", "collect", "reasons", "reference"):
            sys.modules.pop(name, None)


def _named(nav):
    if isinstance(nav, str):
        yield nav
    for one in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _named(one)


def test_every_page_is_in_the_navigation(tree):
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    named = set(_named(site["nav"]))
    listed = {at for at in tree if at.startswith(("decisions/", "files/")) and at not in named}
    assert named == tree.keys() - listed
    assert "0001-one-protocol-for-three-drivers.md" in tree["decisions/index.md"]


def test_the_reference_is_complete(tree):
    def has(page, names):
        text = tree[f"reference/{page}.md"]
        return [name for name in names if f"`{name}`" not in text and f"## {name}\n" not in text]

    policies = [one.name for group in POLICY_GROUPS.values() for one in entry_points(group=group)]
    assert has("settings", SchedulerConfig.model_fields) == []
    assert has("refusals", [reason.value for reason in Reason]) == []
    assert has("policies", policies) == []
    assert has("policy-api", policy_api.__all__) == []
    assert has("commands", ["gangsched explain", "gangsched local up", "gangsched simulate"]) == []
    assert has("kinds", ["PodGroup", "Queue", "Topology", "Reservation", "spec.minMember"]) == []
    assert has("metrics", ["gangsched_binds_total", "gangsched_queue_used", "gangsched_gpus"]) == []


def test_links_of_the_repository_become_those_of_the_site(tree):
    assert "](operations.md" in tree["index.md"]
    assert "](docs/" not in tree["index.md"]
    assert "](../index.md#try-it-yourself)" in tree["tutorials/first-gang.md"]
    assert "](files/manifests/base/user.yaml.md)" in tree["security.md"]
    assert "kind: MutatingAdmissionPolicy" in tree["files/manifests/base/user.yaml.md"]


def test_the_reference_leaves_what_looks_like_a_tag(tree):
    assert "&lt;podgroup>-&lt;role in lower case>-&lt;index>" in tree["reference/kinds.md"]
