"""The output of `gangsched`: the help of each command, and answers for a recorded snapshot.

Commands that need a cluster, start programs or take long have their help alone: run, defrag,
doctor, migrate-storage, support-bundle, snapshot, demo, tune and local.
"""

import json
import re
from pathlib import Path
from unittest.mock import patch

import pytest
import typer
from golden import DATA, agrees
from histories import path_of
from pyarrow import parquet
from rich.console import Console
from typer import rich_utils
from typer.testing import CliRunner

from gangsched.cli import doctor, main
from gangsched.cli.output import printing, tables
from gangsched.recording.journal import restore

JOURNAL = str(path_of("simple"))
SETTINGS = str(DATA / "settings.yaml")
NAMED = {JOURNAL: "JOURNAL", SETTINGS: "SETTINGS"}
LOOK = ("--snapshot", JOURNAL, "--config", SETTINGS)


@pytest.fixture(scope="module")
def app():
    """Return the commands with those that are found by entry points."""
    main.add_plugin_commands()
    return main.app


def invoked(app, *words: str) -> str:
    """Return what a command prints at 80 columns, its errors and its exit code."""
    env = {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1", "TERM": "dumb"}
    env |= {"FORCE_COLOR": None, "_TYPER_FORCE_DISABLE_TERMINAL": "1", "KUBECONFIG": "/nowhere"}
    with patch.object(rich_utils, "MAX_WIDTH", 80):  # it is read once, when typer is imported
        done = CliRunner(env=env).invoke(app, list(words), prog_name="gangsched")
    text = "\n".join(line.rstrip() for line in done.output.splitlines())
    error = done.exception
    if error is not None and not isinstance(error, SystemExit):
        text += f"\n{type(error).__name__}: {error}"
    shown = " ".join(NAMED.get(word, word) for word in words)
    return f"$ gangsched {shown}\n{text}\n[exit code {done.exit_code}]\n"


def everything(command, *above: str):
    """Yield the words of each command."""
    yield above
    for name, one in sorted(getattr(command, "commands", {}).items()):
        yield from everything(one, *above, name)


def test_the_help_of_every_command_is_the_same_again(app):
    listed = list(everything(typer.main.get_command(app)))
    assert len(listed) > 20
    agrees("help.txt", "\n".join(invoked(app, *words, "--help") for words in listed))


ANSWERS = {
    "queues": ("queue",),
    "one-queue": ("queue", "org"),
    "no-queue": ("queue", "nowhere"),
    "what-if": ("what-if", "--nodes", "2:n0", "--quota", "a:nvidia.com/gpu=64"),
    "what-if-nothing": ("what-if",),
    "no-gang": ("explain", "ns/nowhere"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_on_a_snapshot_are_the_same_again(app, name):
    words = (*ANSWERS[name], *LOOK)
    outputs = ("table", "json", "yaml") if name == "queues" else ("table", "json")
    found = [invoked(app, *words, "-o", output) for output in outputs]
    agrees(f"answer-{name}.txt", "\n".join(found))


def test_gangs_are_explained_as_before(app):
    """Two of each state, be they of jobs or made of pods alone."""
    engine = restore(path_of("simple")).engine
    by_state: dict[str, list[str]] = {}
    for one, state in sorted(engine.view.gangs.items()):
        word = "Undeclared" if state.spec is None else state.state.value
        by_state.setdefault(word, []).append(one)
    assert {"Placed", "Pending", "Gathering"} <= set(by_state)
    found = []
    for gangs in by_state.values():
        found += [invoked(app, "explain", one, *LOOK) for one in gangs[:2]]
    for word in ("Placed", "Pending"):
        words = ("explain", by_state[word][0], *LOOK)
        found.append(invoked(app, *words, "-o", "json"))
    agrees("answer-explain.txt", "\n".join(found))


def test_when_a_job_of_a_file_would_start(app, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    worker = {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": "4"}}}]}
    role = {"name": "w", "count": 2, "template": {"spec": worker}}
    body = {"apiVersion": "gangsched.io/v1beta1", "kind": "PodGroup", "metadata": {"name": "new"}}
    (tmp_path / "new.yaml").write_text(json.dumps(body | {"spec": {"queue": "a", "roles": [role]}}))
    (tmp_path / "not.yaml").write_text("kind: Pod\n")
    words = ("when", "new.yaml", *LOOK)
    found = [invoked(app, *words, "-o", output) for output in ("table", "json")]
    found.append(invoked(app, "when", "not.yaml", *LOOK))
    agrees("answer-when.txt", "\n".join(found))


def test_a_replay_that_differs(app):
    policy = ("--policy", "placer=spread", "--policy", "order=shortest")
    found = [invoked(app, "replay", JOURNAL, *policy, "-o", one) for one in ("table", "json")]
    agrees("answer-replay.txt.gz", "\n".join(found))


def test_how_tables_fold_on_a_terminal():
    """What is piped has no width; a terminal of 80 columns has."""
    stamp = "2026-11-24T00:35:12Z"
    start = {
        "position": 1,
        "basis": "declared",
        "expected": stamp,
        "earliest": stamp,
        "latest": stamp,
    }
    waits = {"position": 1, "gang": "team/a-gang-with-a-name", "queue": "vision", "priority": 0}
    waits |= {"gpus": 512, "since": stamp, "start": start, "reason": "BehindReservation"}
    row = {"gang": "a/b", "queue": "q", "now": stamp, "then": None, "gained_s": 60}
    findings = [
        doctor.Finding(level, "labels", "no node has any.", "label them")
        for level in ("ok", "warn", "fail")
    ]
    console = Console(width=80, force_terminal=True, no_color=True, highlight=False)
    with console.capture() as said:
        tables.show_queue([waits], "vision", console, 1_795_480_000.0)
        tables.show_what_if([row], console, 1_795_480_000.0)
        doctor.show(findings, console)
        printing.print_sentence(console, "word " * 40, "word")
    agrees("terminal.txt", said.get())


def test_what_a_simulation_tells(app, tmp_path, monkeypatch):
    """In virtual time, by a seed: its figures, and the columns of the tables it writes."""
    scenario = Path(__file__).parents[2] / "examples" / "simulations" / "rehearsal.yaml"
    text = scenario.read_text().replace("jobs: 50", "jobs: 20")
    (tmp_path / "rehearsal.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    words = ("simulate", "rehearsal.yaml", "--processes", "1", "--seeds", "1", "--out", "out")
    found = [invoked(app, *words, "-o", output) for output in ("table", "json")]
    for path in sorted((tmp_path / "out").rglob("*.parquet")):
        columns = parquet.read_schema(path)
        told = "\n".join(f"{column.name}: {column.type}" for column in columns)
        found.append(f"{path.relative_to(tmp_path)}\n{told}\n")
    said = re.sub(r'"compute_s": [\d.e-]+', '"compute_s": "(measured)"', "\n".join(found))
    agrees("answer-simulate.txt", said)
