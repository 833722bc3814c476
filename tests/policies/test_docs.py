"""The policy of docs/policies.md, and the additions in CONTRIBUTING.md, run as written."""

import re
import sys
import tomllib
import types
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml
from builders import POLICIES, an_engine, needs, node, templated, waiting, written
from pages import everything, items
from placements import an_instance

from gangsched import plugins
from gangsched.api.jobs.trainingjobs import SPECS
from gangsched.config import load_config
from gangsched.core.cluster.state import Cluster
from gangsched.core.facts import GangSeen
from gangsched.core.model.placement import Placement
from gangsched.core.planning.planner import make_plan
from gangsched.core.snapshot import Snapshot
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.kube.decoding.metadata import decode_group
from gangsched.kube.decoding.quantities import DecodeError
from gangsched.kube.status.gang_progress import GangProgress
from gangsched.operators.kinds.training_job import parse
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


def written_there(heading):
    """Return the module that the only Python block below a heading of CONTRIBUTING.md makes."""
    (found,) = [
        one for one in items("CONTRIBUTING.md") if (one.kind, one.heading) == ("python", heading)
    ]
    module = sys.modules["written_there"] = types.ModuleType("written_there")
    exec(compile(found.text, f"CONTRIBUTING.md: {heading}", "exec"), module.__dict__)  # noqa: S102
    return module


def test_an_order_is_added_as_written():
    order = written_there("A policy").LargestFirst()
    engine = an_engine(node("n0"))
    for name, members in (("small", 2), ("large", 8)):
        engine.observe(GangSeen(templated(name, members, needs(1))), 0.0)
    plan = make_plan(engine.begin_cycle(0.0), replace(POLICIES, order=order), 0.0)
    assert [one.gang for one in plan.placements] == ["ns/large"]


def test_a_kind_of_job_is_added_as_written(monkeypatch):
    added = written_there("A kind of job")
    framework = added.Horovod()
    monkeypatch.setitem(FRAMEWORKS, framework.kind, framework)
    monkeypatch.setitem(SPECS, framework.kind, added.HorovodJobSpec)
    template = {"spec": {"containers": [{"name": "horovod", "image": "x"}]}}
    spec = {framework.specs: {"Worker": {"replicas": 3, "template": template}}}
    body = {"metadata": {"name": "j", "namespace": "ns", "uid": "u"}, "spec": spec}
    job = parse(body, "gangsched", framework.kind)
    made = framework.pod_template(job, job.role("Worker"), 2)
    told = {one["name"]: one["value"] for one in made["spec"]["containers"][0]["env"]}
    assert told["HOROVOD_GLOO_RENDEZVOUS_ADDR"] == "j-worker-0"
    assert (told["HOROVOD_RANK"], told["HOROVOD_SIZE"]) == ("2", "3")


def test_a_dialect_is_added_as_written():
    added = written_there("A dialect of groups")
    squad = added.SQUAD
    group = decode_group(written("alpha", "u", {"size": 4}))
    ((gang, _),) = squad.read(group, {}, frozenset({"gangsched"})).values()
    assert (gang.id, gang.min_member) == ("ns/squads.example.com:alpha", 4)
    where = {"state": "Placed", "reason": "Placed", "message": "", "since": "", "refused": False}
    progress = GangProgress(**where, minimum=4, pods=(4, 0, 0))
    assert added.WRITER.body(progress) == {"phase": "Marching"}


def test_a_filter_is_added_as_written():
    driver = written_there("A filter of nodes").driver
    label = "nvidia.com/cuda.driver.major"
    engine = an_engine(node("old", labels={label: "535"}), node("new", labels={label: "570"}))
    wants = needs(1, selector=driver({"gangsched.io/min-driver": "550"}))
    engine.observe(GangSeen(templated("g", 3, wants)), 0.0)
    plan = make_plan(engine.begin_cycle(0.0), POLICIES, 0.0)
    ((planned),) = plan.placements
    assert {place for _, place in planned.placement.nodes} == {"new"}
    assert driver({}) == ()
    with pytest.raises(DecodeError, match="min-driver is 'x'; a whole number is allowed"):
        driver({"gangsched.io/min-driver": "x"})


def test_every_alert_has_its_line_in_the_runbook():
    root = Path(__file__).parents[2]
    rules = yaml.safe_load((root / "manifests" / "monitoring" / "rules.yaml").read_text())
    alerts = {r["alert"] for g in rules["spec"]["groups"] for r in g["rules"] if "alert" in r}
    page = (root / "docs" / "operations.md").read_text()
    told = re.findall(r"^\| (Gangsched\w+) \|", page, re.MULTILINE)
    assert set(told) == alerts
    assert len(told) == len(alerts)


def test_log_lines_that_the_runbook_quotes_are_written():
    """A span of several words is a command or setting, or a part of a message."""
    root = Path(__file__).parents[2]
    sources = "".join(path.read_text() for path in (root / "gangsched").rglob("*.py"))
    alerts = (root / "docs" / "operations.md").read_text().split("## Alerts")[1].split("\n## ")[0]
    commands = ("gangsched ", "kubectl ", "placer_options")
    spans = [one for one in re.findall("`([^`]+)`", alerts) if " " in one]
    quotes = [one for one in spans if not one.startswith(commands)]
    assert len(quotes) > 5
    for quote in quotes:
        message = quote.replace("NAME", "%s").replace("...", "%s")
        assert message in sources, f"no message says {quote!r}"
