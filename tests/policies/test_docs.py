"""The policy of docs/policies.md is run as it stands there."""

import re
import sys
import tomllib
import types
from importlib.metadata import EntryPoint
from pathlib import Path

import yaml
from builders import needs, node, templated, waiting
from pages import everything
from placements import an_instance

from gangsched import plugins
from gangsched.config import load_config
from gangsched.core.cluster.state import Cluster
from gangsched.core.model.placement import Placement
from gangsched.core.snapshot import Snapshot
from simulator.invariants.placement_checks import check_placement

PAGE = Path(__file__).parents[2] / "docs/policies.md"


def the_policy():
    """Return the class of the page, from its first Python block."""
    (text,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    body = text[text.index("@dataclass") :]
    assert len([line for line in body.splitlines() if line.strip()]) <= 20
    module = types.ModuleType("my_policies")
    sys.modules["my_policies"] = module
    exec(compile(text, str(PAGE), "exec"), module.__dict__)  # noqa: S102 -- our own page
    return module.MostCpu()


def test_it_does_what_the_page_says():
    made = Cluster()
    for name, cpu in (("small", 8_000), ("large", 64_000), ("middle", 16_000)):
        made.put_node(node(name, cpu=cpu))
    gang = waiting(templated("g", 9, needs(1)))
    result = the_policy().place(gang, Snapshot(made, ()))
    assert [place for _, place in result.nodes].count("large") == 8
    assert [place for _, place in result.nodes].count("middle") == 1


def test_it_passes_the_checker():
    placed = 0
    for seed in range(300):
        instance = an_instance(seed)
        result = the_policy().place(instance.waiting, instance.snapshot)
        if isinstance(result, Placement):
            placed += 1
            check_placement(instance.waiting, dict(result.nodes), instance.situation)
    assert placed > 30


def test_the_settings_of_the_pages_are_taken(tmp_path, monkeypatch):
    """Every block of settings, with what docs/policies.md declares as an entry point."""
    (declared,) = everything("toml")
    named = tomllib.loads(declared.text)["project"]["entry-points"]
    the_policy()
    real = plugins.entry_points

    def found(*, group: str) -> list[EntryPoint]:
        ours = named.get(group, {}).items()
        return [*real(group=group), *(EntryPoint(name, value, group) for name, value in ours)]

    monkeypatch.setattr(plugins, "entry_points", found)
    for item in everything("settings"):
        path = tmp_path / "settings.yaml"
        path.write_text(item.text)
        assert plugins.load_policies(load_config(path)).placer, item


def test_every_alert_has_its_line_in_the_runbook():
    root = Path(__file__).parents[2]
    rules = yaml.safe_load((root / "manifests" / "monitoring" / "rules.yaml").read_text())
    alerts = {r["alert"] for g in rules["spec"]["groups"] for r in g["rules"] if "alert" in r}
    page = (root / "docs" / "operations.md").read_text()
    told = re.findall(r"^\| (Gangsched\w+) \|", page, re.MULTILINE)
    assert set(told) == alerts
    assert len(told) == len(alerts)
