"""A package that is not installed: a sentence that names the extra, or an error of ours."""

import sys
import tomllib
from pathlib import Path

import pytest

from gangsched.cli import main


def called(monkeypatch, missing):
    def app():
        raise ModuleNotFoundError(f"No module named {missing!r}", name=missing)

    monkeypatch.setattr(sys, "argv", ["gangsched", "simulate"])
    monkeypatch.setattr(main, "app", app)
    monkeypatch.setattr(main, "add_plugin_commands", lambda: None)
    main.main()


def test_packages_of_the_simulator_are_an_extra(monkeypatch, capfd):
    with pytest.raises(SystemExit) as ended:
        called(monkeypatch, "matplotlib.pyplot")
    assert ended.value.code == 2
    assert capfd.readouterr().err == (
        "error: No module named 'matplotlib.pyplot'; "
        "install it with pip install 'gangsched[simulator]'\n"
    )


def test_the_extra_is_what_the_project_declares():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    declared = {one.partition(">")[0] for one in project["optional-dependencies"]["simulator"]}
    assert declared == main._SIMULATOR


def test_any_other_module_is_our_error(monkeypatch):
    with pytest.raises(ModuleNotFoundError, match="kubernetes"):
        called(monkeypatch, "kubernetes")


def test_commands_of_other_packages_are_added_once():
    main.add_plugin_commands()
    count = len(main.app.registered_commands)
    main.add_plugin_commands()
    assert len(main.app.registered_commands) == count
