"""The output of commands: whole names, one line per row in a pipe, one time format, raw data."""

import io
import json
import re

import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner

from gangsched.cli import doctor, local, main
from gangsched.cli.output import printing, tables
from gangsched.config import ConfigError

GANG = "computer-vision-research/resnet-152-imagenet-21k-nightly-2026-11-24"
STAMP = "2026-11-24T00:35:12Z"
SPAN = {"expected": STAMP, "earliest": STAMP, "latest": "2026-11-24T01:35:12Z"}
START = {"position": 1, "basis": "declared", **SPAN}
MOMENT = "2026-11-24 00:35:12Z"
NOW_S = 1_795_480_000.0
MESSAGE = (
    "Room for 4 pods of 8 nvidia.com/gpu is short: the closest node, "
    "gpu-node-with-a-long-name-0017, lacks 6 of them [and 2 more]."
)


def terminal(width=80) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)


def printed(console: Console) -> list[str]:
    text = re.sub(r"\x1b\[[0-9;]*m", "", console.file.getvalue())
    return [line.rstrip() for line in text.splitlines()]


def piped(monkeypatch) -> Console:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    made = printing.console()
    made.file = io.StringIO()
    return made


def waiting(gang=GANG) -> dict:
    row = {"position": 1, "gang": gang, "queue": "vision", "priority": 0, "gpus": 512}
    return row | {"since": STAMP, "start": START, "reason": "BehindReservation"}


EXPLAINED = {
    "gang": GANG,
    "state": "Pending",
    "queue": "vision",
    "priority": 0,
    "pods": {"min": 64, "bound": 0},
    "reason": "NotEnoughFree",
    "message": MESSAGE,
    "wouldHelp": [],
    "start": START | {"reserved": STAMP},
}
RUNNING = EXPLAINED | {
    "state": "Placed",
    "nodes": [f"gpu-node-with-a-long-name-{index:04}" for index in range(9)],
    "since": STAMP,
    "expectedEnd": {"at": STAMP, "earliest": STAMP, "latest": STAMP, "basis": "declared"},
}
OWN = {"gang": GANG, "kind": "PyTorchJob", "state": "Waiting", "message": MESSAGE, "reason": "x"}


@pytest.mark.parametrize("width", [80, 60])
def test_a_terminal_never_breaks_a_name(width):
    console = terminal(width)
    tables.show_queue([waiting(), waiting("a/b")], "vision", console, NOW_S)
    lines = printed(console)
    assert sum(GANG in line for line in lines) == 1
    rows = [{"gang": GANG, "queue": "q" * 60, "now": STAMP, "then": None, "gained_s": None}]
    console = terminal(width)
    tables.show_what_if(rows, console, NOW_S)
    assert any(GANG in line and "q" * 60 in line for line in printed(console))


def test_other_columns_fold_before_names_do():
    console = terminal(80)
    at = {"at": STAMP, "gang": "vision/resnet-152-imagenet-nightly"}
    nodes = ", ".join(f"gpu-node-{index:04}" for index in range(12))
    tables.show_differences([at | {"then": nodes, "now": ""}], "1 decision differs", console)
    lines = printed(console)
    assert max(map(len, lines)) <= 80
    assert sum("vision/resnet-152-imagenet-nightly" in line for line in lines) == 1
    assert len(re.findall(r"gpu-node-\d{4}\b", "\n".join(lines))) == 12


@pytest.mark.parametrize("found", [EXPLAINED, RUNNING, OWN], ids=["waits", "runs", "own"])
def test_further_lines_are_indented_and_times_have_one_form(found):
    console = terminal(80)
    tables.show_gang(found, console)
    lines = printed(console)
    assert max(map(len, lines)) <= 80
    assert all(line.startswith("  ") for line in lines[1:])
    told = " ".join(" ".join(lines).split())
    if found is not OWN:
        assert MOMENT in told
    assert not re.search(r"\d[T ]\d\d:\d\d(:\d\d)?(?![:\dZ])", told), told
    assert STAMP not in told
    if found is not RUNNING:
        assert MESSAGE in told
    assert (f"its nodes are reserved from {MOMENT}" in told) == (found is EXPLAINED)


def test_a_pipe_gets_one_line_for_each_row(monkeypatch):
    console = piped(monkeypatch)
    tables.show_queue([waiting(f"{GANG}-{index}") for index in range(3)], "q", console, NOW_S)
    assert len(printed(console)) == 4
    console = piped(monkeypatch)
    tables.show_gang(EXPLAINED, console)
    assert len(printed(console)) == 3
    console = piped(monkeypatch)
    finding = doctor.Finding("warn", "labels", "n " * 200, "label them")
    doctor.show([finding, doctor.Finding("ok", "clock", "agrees")], console)
    assert len(printed(console)) == 2


@pytest.mark.parametrize(("output", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_data_is_printed_as_json_or_yaml(capsys, output, read):
    found = {"a": (1, float("nan")), "b": {2: None}}
    printing.print_answer(found, output, pytest.fail)
    assert read(capsys.readouterr().out) == {"a": [1, None], "b": {"2": None}}


WITH_OUTPUT = (
    "explain queue when what-if replay defrag doctor migrate-storage simulate tune local/status"
)


@pytest.fixture(scope="module")
def app():
    """Return the commands with those that are found by entry points."""
    main.add_plugin_commands()
    return main.app


@pytest.mark.parametrize("command", WITH_OUTPUT.split())
def test_every_answer_has_an_output(app, command):
    words = command.split("/")
    runner = CliRunner(env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"})
    said = runner.invoke(app, [*words, "-h"]).output
    assert "--output" in said, said
    required = {"explain": ["x"], "when": ["x"], "replay": ["x"], "simulate": ["x"]}
    required["tune"] = ["x", "--parameter", "y"]
    done = runner.invoke(app, [*words, *required.get(command, ()), "-o", "xml"])
    assert isinstance(done.exception, ConfigError)
    assert str(done.exception) == "--output: 'xml' is not allowed; use table, json or yaml"


def test_the_state_of_local_planes_as_data(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(local, "instances", list)
    local.status(output="json")
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("name", ["gangsched", "kubectl-gang"])
def test_shells_complete_commands(app, shell, name):
    variable = f"_{name.upper().replace('-', '_')}_COMPLETE"
    assert "--install-completion" in CliRunner().invoke(app, ["-h"], prog_name=name).output
    done = CliRunner(env={variable: f"source_{shell}"}).invoke(app, [], prog_name=name)
    assert variable in done.output, "the shell's own function"
    asked = {
        variable: f"complete_{shell}",
        "COMP_WORDS": f"{name} what",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": f"{name} what",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    assert "what-if" in CliRunner(env=asked).invoke(app, [], prog_name=name).output
