"""Runs a pod: the script on node 0, the tasks of `srun` on the others."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

from .link import FOLDER, LINE_MAX, ask, job_settings
from .tasks import PodTasks, TaskServer, send_signal

_OWN = Path(os.environ.get("TMPDIR") or "/tmp") / "gangsched-batch"
STEPS = _OWN / "steps"
"""A file for each srun that runs, with its process number as name."""

_START = "import sys; sys.path.insert(0, sys.argv.pop(1)); from pod.__main__ import main; main()"
_COMMANDS = ("srun", "scontrol")
_END_S = 30.0
_FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)


def run_pod() -> int:
    """Run the pod; return its exit code."""
    job, tasks = job_settings(), PodTasks()
    server = TaskServer(int(job["port"]), tasks)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    if int(os.environ.get("JOB_COMPLETION_INDEX", "0")):
        signal.signal(signal.SIGTERM, lambda *_: tasks.end(128 + signal.SIGTERM))
        tasks.over.wait()
        tasks.send(signal.SIGTERM)
        return tasks.code
    code = _run_script(job)
    end_others(job["hosts"][1:], int(job["port"]))
    return code


def end_others(hosts: list[str], port: int) -> None:
    """End the other pods with 0, because the script ended.

    Only the pod of the script says how the job ended. If another pod failed before it, its Job
    would fail, and the pod of the script would be deleted before the user has read its log.
    """
    for host in hosts:
        with contextlib.suppress(OSError, SystemExit):  # that pod is gone already
            connection, file = ask(host, port, {"kind": "end"}, time.monotonic() + _END_S)
            file.readline(100)
            connection.close()


def _run_script(job: dict[str, Any]) -> int:
    """Run the script as the batch step of Slurm; return its exit code."""
    environment = {**os.environ, **job["environment"]}
    commands = _OWN / "bin"
    for folder in (commands, STEPS):
        folder.mkdir(parents=True, exist_ok=True)
    for name in _COMMANDS:
        path = commands / name
        path.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{_START}" {FOLDER} {name} "$@"\n')
        path.chmod(0o755)
    environment["PATH"] = f"{commands}{os.pathsep}{environment.get('PATH', os.defpath)}"
    script = _OWN / "slurm_script"
    script.write_text((FOLDER / "script").read_text())
    script.chmod(0o755)
    if job["directory"]:
        Path(job["directory"]).mkdir(parents=True, exist_ok=True)
        os.chdir(job["directory"])
    out = _opened(job["output"], job)
    err = _opened(job["error"], job) if job["error"] else out
    process = subprocess.Popen(
        [str(script), *job["arguments"]],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    if job["signal"]:
        threading.Thread(target=_warn, args=(process, job), daemon=True).start()
    for number in _FORWARDED:
        signal.signal(number, lambda got, _: send_signal(process, got))
    assert process.stdout is not None  # noqa: S101 -- pipes
    assert process.stderr is not None  # noqa: S101
    copies = (
        (process.stdout, sys.stdout.buffer, out),
        (process.stderr, sys.stderr.buffer, err),
    )
    copiers = [threading.Thread(target=_copy, args=copy, daemon=True) for copy in copies]
    for copier in copiers:
        copier.start()
    code = process.wait()
    for copier in copiers:
        copier.join(5.0)
    return code if code >= 0 else 128 - code


def _warn(process: subprocess.Popen[bytes], job: dict[str, Any]) -> None:
    """Send the signal of --signal some time before the end: to the script, or to its sruns."""
    time.sleep(max(float(job["signal_after_s"]), 0.0))
    named = getattr(signal, f"SIG{job['signal']}", None)
    number = int(named if named is not None else job["signal"])
    steps = [int(path.name) for path in STEPS.iterdir()]
    for target in [process.pid] if job["signal_to_script"] else steps:
        with contextlib.suppress(OSError):
            os.kill(target, number)


def _opened(pattern: str, job: dict[str, Any]) -> BinaryIO | None:
    """Open the file of an output pattern, or return None."""
    if not pattern:
        return None
    path = Path(filled(pattern, job["patterns"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("ab" if job["append"] else "wb")


def filled(pattern: str, values: dict[str, str]) -> str:
    """Replace %j, %x and others in a pattern; a number between pads with zeros, and %% is %."""

    def value(match: re.Match[str]) -> str:
        width, letter = match.group(1), match.group(2)
        if letter == "%":
            return "%"
        text = values.get(letter)
        if text is None:
            return match.group(0)
        return text.zfill(min(int(width), 10)) if width and text.isdigit() else text

    return re.sub(r"%(\d{0,2})([%A-Za-z])", value, pattern)


def _copy(source: BinaryIO, target: BinaryIO, file: BinaryIO | None) -> None:
    """Copy lines to the log of the pod and to a file."""
    while True:
        line = source.readline(LINE_MAX)
        if not line:
            return
        for sink in (target, file):
            if sink is not None:
                sink.write(line)
                sink.flush()
