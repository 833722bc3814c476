"""The examples of the guides: what the table lists, and how an example is run."""

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from gangsched.cli import guides as runner
from gangsched.cli.guides import Example, Guide, guides, states_of

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "guides"
SEEDS = ROOT.parent / "shared" / "seeds"
TEXTS = {1: "000", 3: "002"}
"""The guides whose text has YAML with its indentation."""

CASES = [
    pytest.param(guide, example, id=f"{guide.number}-{example.title}")
    for guide in guides().values()
    for example in guide.examples
]


def test_there_are_four_guides():
    assert list(guides()) == [1, 2, 3, 4]


@pytest.mark.parametrize(("guide", "example"), CASES)
def test_every_file_of_a_command_exists(guide, example):
    lines = [line for line in example.run if isinstance(line, str)]
    pattern = r"(?:-f |--from-file=(?:[\w.]+=)?|python |\" )([\w./-]+\.(?:yaml|py))"
    for name in re.findall(pattern, "\n".join(lines)):
        assert (EXAMPLES / str(guide.number) / name).is_file(), name


def test_every_file_is_used_by_an_example():
    text = (EXAMPLES / "guides.yaml").read_text()
    for path in EXAMPLES.rglob("*"):
        if path.suffix in (".yaml", ".py") and path.name not in ("guides.yaml", "nodes.yaml"):
            assert path.name in text, path


@pytest.mark.parametrize(("guide", "example"), CASES)
def test_an_example_waits_for_an_end_and_shows_it(guide, example):
    """An example whose commands only succeed would prove nothing."""
    waits = [step for step in example.run if not isinstance(step, str)]
    assert example.shows or waits[-1].wait.endswith(" deleted")


@pytest.mark.parametrize(("guide", "example"), CASES)
def test_the_page_lists_what_differs(guide, example):
    page = (ROOT / "docs" / "tutorials" / "guides.md").read_text()
    for change in example.changed:
        assert f"| {example.title} | {change.field} | {change.why} |\n" in page


# -- what differs from the guides --------------------------------------------------------------


def blocks(number: int) -> dict[str, list[dict]]:
    """Return the objects of a guide by the file name in the first line of their block."""
    (path,) = SEEDS.glob(f"{TEXTS[number]}_*.txt")
    found = re.findall(r"```yaml\n# (\S+\.yaml)\n(.*?)```", path.read_text(), re.DOTALL)
    return {name: [d for d in yaml.safe_load_all(text) if d] for name, text in found}


def differing(own: Any, theirs: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of every field in which two objects differ."""
    if isinstance(own, dict) and isinstance(theirs, dict):
        for key in own.keys() | theirs.keys():
            yield from differing(own.get(key), theirs.get(key), (*path, key))
    elif isinstance(own, list) and isinstance(theirs, list) and len(own) == len(theirs):
        for mine, other in zip(own, theirs, strict=True):
            yield from differing(mine, other, path)
    elif (own or None) != (theirs or None):  # an empty list says what no list says
        yield path


@pytest.mark.skipif(not SEEDS.exists(), reason=f"the guides are not at {SEEDS}")
@pytest.mark.parametrize("number", TEXTS)
def test_objects_differ_from_the_guide_only_in_listed_fields(number):
    allowed: dict[str, set[str]] = {}
    for example in guides()[number].examples:
        for change in example.changed:
            name, _, fields = change.field.partition(" ")
            allowed.setdefault(name, set()).update(fields.split(", "))
    compared = 0
    for file, theirs in blocks(number).items():
        path = EXAMPLES / str(number) / file
        if not path.exists():
            continue
        for body in yaml.safe_load_all(path.read_text()):
            name = f"{body['kind']}/{body['metadata']['name']}"
            same = [d for d in theirs if d["metadata"]["name"] == body["metadata"]["name"]]
            same = [d for d in same if d["kind"] == body["kind"]]
            listed = allowed.get(name, set())
            if not same:
                assert name in allowed, f"{name} is not in the guide, and no change says so"
                continue
            compared += 1
            for where in differing(body, same[0]):
                assert listed & set(where), f"{file}: {name} {'.'.join(where)} is not listed"
    assert compared >= 5


# -- how an example runs -----------------------------------------------------------------------

KUBECTL = """#!/bin/sh
# Answers as the files of its folder say; each `get` of an object takes the next answer.
cd "$(dirname "$(readlink -f "$0")")"
case "$1" in
get) n=$(cat turn 2>/dev/null || echo 0); echo $((n + 1)) > turn
     [ -f "answer-$n" ] && cat "answer-$n" || cat answer-last ;;
fail) echo "no such thing"; exit 3 ;;
*) echo "done: $*" ;;
esac
"""


class StandIn:
    """A control plane of which only kubectl is there."""

    def __init__(self, folder: Path, *answers: dict | None) -> None:
        self.kubeconfig = folder / "admin.kubeconfig"
        self.kubeconfig.write_text("")
        self._kubectl = folder / "kubectl-stand-in"
        self._kubectl.write_text(KUBECTL)
        self._kubectl.chmod(0o755)
        texts = ["" if one is None else json.dumps(one) for one in answers] or [""]
        for at, text in enumerate(texts):
            (folder / f"answer-{at}").write_text(text)
        (folder / f"answer-{len(texts) - 1}").rename(folder / "answer-last")

    def info(self) -> dict[str, str]:
        return {"kubectl": str(self._kubectl)}


def having(*types: str, message: str = "") -> dict:
    """Return an object with true conditions."""
    listed = [{"type": kind, "status": "True", "message": message} for kind in types]
    return {"status": {"conditions": listed}}


def ran(tmp_path: Path, *answers: dict | None, **fields) -> tuple[runner.Result, str]:
    """Run one example on a stand-in; return its result, and what was printed."""
    example = Example(title="one", **fields)
    guide = Guide(number=1, title="g", namespace="default", examples=(example,))
    out = io.StringIO()
    console = Console(file=out, width=80)
    programs = tmp_path / "programs"
    programs.mkdir()
    plane = StandIn(tmp_path, *answers)
    result = runner._Runner(console, guide, plane, programs).run(1, example)  # type: ignore[arg-type]
    return result, out.getvalue()


def test_it_runs_its_commands_waits_and_looks_for_its_text(tmp_path):
    states = having("Created"), having("Created", "Running"), having("Created", "Succeeded")
    run = ["kubectl apply -f x", {"wait": "pytorchjob/x Succeeded"}, "kubectl logs x"]
    changed = [{"field": "a field", "why": "a reason"}]
    result, said = ran(tmp_path, *states, run=run, shows="done: logs x", changed=changed)
    assert result.outcome == "ok"
    assert "  changed: a field: a reason" in said
    assert "  $ kubectl apply -f x" in said
    assert "  pytorchjob/x: Created, Running, Succeeded" in said


def test_it_waits_until_an_object_is_deleted(tmp_path):
    result, said = ran(tmp_path, having("Created"), None, run=[{"wait": "pytorchjob/x deleted"}])
    assert result.outcome == "ok"
    assert "pytorchjob/x: Created, deleted" in said


def test_a_job_that_fails_ends_the_wait_with_its_message(tmp_path):
    failed = having("Created", "Failed", message="the pod ended with exit code 1")
    result, said = ran(tmp_path, failed, run=[{"wait": "pytorchjob/x Succeeded"}])
    assert (result.outcome, result.reason) == (
        "failed",
        "pytorchjob/x failed: the pod ended with exit code 1",
    )
    assert "FAILED: pytorchjob/x failed" in said


def test_a_state_that_does_not_come_is_named_with_those_that_did(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_WAIT_S", 0.0)
    result, _ = ran(tmp_path, having("Created"), run=[{"wait": "pytorchjob/x Succeeded"}])
    assert result.reason == "pytorchjob/x is not Succeeded after 0 s: Created"


def test_a_command_that_fails_fails_the_example(tmp_path):
    result, _ = ran(tmp_path, run=["kubectl fail", "kubectl logs x"])
    assert result.reason == "'kubectl fail' ended with 3: no such thing"


def test_a_text_that_is_not_shown_fails_the_example(tmp_path):
    result, _ = ran(tmp_path, run=["kubectl logs x"], shows="trained")
    assert result.outcome == "failed"
    assert "does not show 'trained'" in result.reason


def test_what_is_not_installed_is_named_and_nothing_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "_is_installed", lambda need: need != "tensorflow")
    result, said = ran(tmp_path, run=["kubectl apply -f x"], needs=["torch", "tensorflow"])
    assert result.outcome == "not run"
    assert result.reason == "tensorflow is not installed; pip install 'gangsched[frameworks]'"
    assert "$ kubectl" not in said


def test_an_unknown_need_is_refused_with_those_that_exist():
    with pytest.raises(ValueError, match=r"\['caffe'\] is not allowed; use \['kubeflow'"):
        Example(title="t", run=["kubectl get x"], needs=["caffe"])


@pytest.mark.parametrize(
    ("status", "states"),
    [
        ({}, []),
        ({"phase": "Running"}, ["Running"]),
        (
            {"conditions": [{"type": "A", "status": "False"}, {"type": "B", "status": "True"}]},
            ["B"],
        ),
    ],
)
def test_states_are_true_conditions_and_the_phase(status, states):
    assert states_of({"status": status})[0] == states


@pytest.mark.parametrize(
    ("outcomes", "ended_well"),
    [
        (["ok", "ok"], True),
        (["ok", "not run"], True),
        (["ok", "failed"], False),
        (["not run"], False),
    ],
)
def test_the_guide_ends_well_if_something_ran_and_nothing_failed(monkeypatch, outcomes, ended_well):
    results = [runner.Result(f"e{at}", one) for at, one in enumerate(outcomes)]
    monkeypatch.setattr(runner, "run_guide", lambda *_: results)
    out = io.StringIO()
    assert runner.run(Console(file=out, width=80), 1) is ended_well
    assert f"{outcomes.count('ok')} of {len(outcomes)} examples ran to their end" in out.getvalue()
