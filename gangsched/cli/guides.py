"""`gangsched demo --guide`: runs the examples of a public guide on a new control plane.

The examples are data: `examples/guides/guides.yaml` names their commands, the states that they
reach, and what differs from the guide.
"""

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, field_validator
from rich.console import Console

from gangsched.cli.output.printing import new_table, print_table
from gangsched.local.nodes import load_nodes
from gangsched.local.plane import Binding, Plane, PlaneOptions
from gangsched.local.progress import show_progress
from gangsched.shipped import folder

_POLL_S = 0.5
_COMMAND_S, _WAIT_S = 300.0, 600.0
_LINES_SHOWN = 6
_INSTALLED_BY = {
    "kubeflow": "pip install 'gangsched[guides]'",
    "mlflow": "gangsched local build --tracking",
    "optuna": "pip install 'gangsched[experiments]'",
    "sklearn": "pip install 'gangsched[torch]'",
    "tensorflow": "pip install 'gangsched[frameworks]'",
    "torch": "pip install 'gangsched[torch]'",
}
"""What an example may need, and the command that installs it."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GuideChange(_Strict):
    """A field in which an example differs from its guide."""

    field: str
    why: str


class Wait(_Strict):
    """Wait for a state of an object: `pytorchjob/train Succeeded`."""

    wait: str = Field(pattern=r"^[a-z.]+/[a-z0-9-]+ [A-Za-z]+$")
    """The state is a condition that is true, a phase, or `deleted`."""


class Example(_Strict):
    """One example: its commands and states run in order, and the last command shows a text."""

    title: str = Field(max_length=60)
    needs: tuple[str, ...] = ()
    changed: tuple[GuideChange, ...] = ()
    run: tuple[Wait | str, ...] = Field(min_length=1)
    shows: str = ""

    @field_validator("needs")
    @classmethod
    def _known(cls, needs: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := set(needs) - set(_INSTALLED_BY):
            raise ValueError(f"{sorted(unknown)} is not allowed; use {sorted(_INSTALLED_BY)}")
        return needs


class Guide(_Strict):
    """The examples of one guide, in its namespace."""

    number: int
    title: str
    namespace: str
    examples: tuple[Example, ...]


@dataclass(frozen=True, slots=True)
class Result:
    """How one example ended; `reason` says why it failed or did not run."""

    title: str
    outcome: Literal["ok", "failed", "not run"]
    took_s: float = 0.0
    reason: str = ""


class _ExampleError(Exception):
    """An example did not end as it should; the message is the reason."""


def guides() -> dict[int, Guide]:
    """Return the guides by number."""
    text = (folder("examples") / "guides" / "guides.yaml").read_text()
    listed = [Guide.model_validate(body) for body in yaml.safe_load(text)["guides"]]
    return {guide.number: guide for guide in listed}


def run(console: Console, number: int, binding: Binding = "extender") -> bool:
    """Run the examples of a guide; return whether some ran, and all that ran ended well."""
    results = run_guide(console, guides()[number], binding)
    _print_summary(console, results)
    outcomes = {result.outcome for result in results}
    return "ok" in outcomes and "failed" not in outcomes


def run_guide(console: Console, guide: Guide, binding: Binding = "extender") -> list[Result]:
    """Run the examples of a guide on a new control plane, one after another."""
    plane = Plane(f"guide-{guide.number}")
    plane.down()
    nodes = load_nodes(folder("examples") / "guides" / "nodes.yaml")
    with show_progress(console, "starting") as progress:
        plane.up(nodes, PlaneOptions(binding=binding), progress)
    console.print(f"guide {guide.number}: {guide.title} ({len(guide.examples)} examples)\n")
    try:
        with tempfile.TemporaryDirectory() as programs:
            runner = _Runner(console, guide, plane, Path(programs))
            return [runner.run(at, example) for at, example in enumerate(guide.examples, 1)]
    finally:
        plane.down()


class _Runner:
    """Runs the examples of one guide on one control plane.

    Commands run in the folder of the guide, in its namespace, with `kubectl` and `python` of the
    control plane on the PATH.
    """

    def __init__(self, console: Console, guide: Guide, plane: Plane, programs: Path) -> None:
        self._console = console
        self._guide = guide
        self._folder = folder("examples") / "guides" / str(guide.number)
        (programs / "kubectl").symlink_to(plane.info()["kubectl"])
        kubeconfig = programs / "kubeconfig"
        kubeconfig.write_text(plane.kubeconfig.read_text())
        path = f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._environment = os.environ | {"KUBECONFIG": str(kubeconfig), "PATH": path}
        if (python := _mlflow_python()) is not None:
            self._environment["MLFLOW_BIN"] = str(python.parent)
        if guide.namespace != "default":
            self._shell(f"kubectl create namespace {guide.namespace}")
        self._shell(f"kubectl config set-context --current --namespace={guide.namespace}")

    def run(self, at: int, example: Example) -> Result:
        """Run an example, and print what it does."""
        print_ = self._console.print
        print_(f"{at}/{len(self._guide.examples)} {example.title}", style="bold", markup=False)
        missing = [need for need in example.needs if not _is_installed(need)]
        if missing:
            reason = f"{missing[0]} is not installed; {_INSTALLED_BY[missing[0]]}"
            print_(f"  not run: {reason}\n", markup=False, soft_wrap=True)
            return Result(example.title, "not run", reason=reason)
        for change in example.changed:
            print_(f"  changed: {change.field}: {change.why}", markup=False)
        begun_s = time.monotonic()
        try:
            said = ""
            for step in example.run:
                said = self._wait(step) if isinstance(step, Wait) else self._command(step)
            _check_shown(example.shows, said)
        except _ExampleError as error:
            print_(f"  FAILED: {error}", markup=False)
            print_(self._shell("kubectl get pods,podgroups.gangsched.io -o wide"), markup=False)
            return Result(example.title, "failed", time.monotonic() - begun_s, str(error))
        took_s = time.monotonic() - begun_s
        print_(f"  ok after {took_s:.0f} s\n")
        return Result(example.title, "ok", took_s)

    def _command(self, line: str) -> str:
        """Run a command, show the end of its output, and return all of it.

        Raises:
            _ExampleError: it failed.

        """
        self._console.print(f"  $ {line}", markup=False, highlight=False)
        said = self._shell(line)
        for text in said.splitlines()[-_LINES_SHOWN:]:
            self._console.print(
                f"    {text}", markup=False, highlight=False, overflow="ellipsis", no_wrap=True
            )
        return said

    def _shell(self, line: str) -> str:
        try:
            done = subprocess.run(
                ["sh", "-c", line],
                cwd=self._folder,
                env=self._environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_COMMAND_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise _ExampleError(f"{line!r} did not end within {_COMMAND_S:g} s") from error
        if done.returncode:
            raise _ExampleError(f"{line!r} ended with {done.returncode}: {done.stdout.strip()}")
        return done.stdout

    def _wait(self, wait: Wait) -> str:
        """Wait until an object has a state, and show the states on the way.

        Raises:
            _ExampleError: it failed, or does not have the state in time.

        """
        name, wanted = wait.wait.split()
        seen: list[str] = []
        deadline_s = time.monotonic() + _WAIT_S
        with self._console.status(f"  {name}: waiting for {wanted}") as status:
            while wanted not in seen:
                states, message = self._states(name)
                seen += [state for state in states if state not in seen]
                status.update(f"  {name}: {', '.join(seen)}")
                if "Failed" in states and wanted != "Failed":
                    raise _ExampleError(f"{name} failed: {message}")
                if time.monotonic() > deadline_s:
                    states_seen = ", ".join(seen) or "no state"
                    raise _ExampleError(
                        f"{name} is not {wanted} after {_WAIT_S:g} s: {states_seen}"
                    )
                time.sleep(_POLL_S)
        line = f"  {name}: {', '.join(seen)}"
        self._console.print(line, markup=False, highlight=False)
        return line

    def _states(self, name: str) -> tuple[list[str], str]:
        """Return the states of an object, and the message of the last condition."""
        text = self._shell(f"kubectl get --ignore-not-found -o json {name}")
        if not text.strip():
            return ["deleted"], ""
        return states_of(json.loads(text))


def states_of(body: dict[str, Any]) -> tuple[list[str], str]:
    """Return the true conditions and the phase of an object, and the last condition's message."""
    status = body.get("status") or {}
    conditions = [c for c in status.get("conditions") or [] if c.get("status") == "True"]
    states = [str(condition["type"]) for condition in conditions]
    if status.get("phase"):
        states.append(str(status["phase"]))
    return states, str(conditions[-1].get("message", "")) if conditions else ""


def _check_shown(text: str, said: str) -> None:
    """Check that the last command shows the text of its example.

    Raises:
        _ExampleError: it does not.

    """
    if text not in said:
        raise _ExampleError(f"the last command does not show {text!r}: {said!r}")


def _is_installed(need: str) -> bool:
    if need == "mlflow":
        return _mlflow_python() is not None
    return importlib.util.find_spec(need) is not None


def _mlflow_python() -> Path | None:
    """Return the Python of the MLflow environment, unless it is not installed."""
    from gangsched.local.tracking.mlflow_server import installed_programs  # noqa: PLC0415

    programs = installed_programs()
    return programs / "python" if programs else None


def _print_summary(console: Console, results: Sequence[Result]) -> None:
    table = new_table("EXAMPLE", "RESULT", "TIME", right=("TIME",))
    for result in results:
        table.add_row(result.title, result.outcome, f"{result.took_s:.0f} s")
    print_table(table, console)
    ended = sum(result.outcome == "ok" for result in results)
    console.print(f"{ended} of {len(results)} examples ran to their end")
