"""Processes that outlive the command that started them, and are found again whatever happened.

Every process carries the instance's folder in its environment. So a killed `up` leaves nothing
that `down` would not find, even where the kill fell between a start and its record.
"""

import json
import os
import subprocess
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

MARK = "GANGSCHED_LOCAL"
UNBUFFERED = {"PYTHONUNBUFFERED": "1"}
"""Variables of all programs: without buffering, logs are complete whenever they are read."""

_TAIL_BYTES = 2**26
_STOP_S = 10.0
_STOP_ALL_S = 2.0
"""Time for all programs to end together: their data is removed, so they need little time."""


@dataclass(frozen=True, slots=True)
class Program:
    """A process of a control plane: its command and its process id."""

    name: str
    command: list[str]
    pid: int
    created_s: float

    def alive(self) -> bool:
        """Return whether the same process still runs (its pid may belong to another process)."""
        try:
            process = psutil.Process(self.pid)
            running = process.status() != psutil.STATUS_ZOMBIE
            return running and abs(process.create_time() - self.created_s) < 1.0
        except psutil.NoSuchProcess:
            return False


class Programs:
    """The processes of one control plane, recorded in `programs.json`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._record = folder / "programs.json"
        self.logs = folder / "logs"

    def begin(self) -> None:
        """Write an empty record; it also marks the folder as that of a control plane."""
        self._write([])

    def ours(self) -> bool:
        """Return whether the folder belongs to a control plane, also if its start failed."""
        if self.folder.is_symlink():
            return False
        return any((self.folder / mark).is_file() for mark in ("instance.json", "programs.json"))

    def all(self) -> list[Program]:
        """Return every recorded process."""
        if not self._record.exists():
            return []
        return [Program(**item) for item in json.loads(self._record.read_text())]

    def ended(self) -> list[str]:
        """Return the names of ended programs, in the order in which they were started."""
        return [program.name for program in self.all() if not program.alive()]

    def get(self, name: str) -> Program:
        """Return the process with this name.

        Raises:
            KeyError: there is no such process; the message lists the existing ones.

        """
        for program in self.all():
            if program.name == name:
                return program
        existing = ", ".join(program.name for program in self.all()) or "none"
        raise KeyError(f"no program {name!r}; there are: {existing}")

    def start(self, name: str, command: list[str], environment: dict[str, str]) -> Program:
        """Start a process in a session of its own; its output goes to its log."""
        self.logs.mkdir(parents=True, exist_ok=True)
        with (self.logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=self.folder,
                env=os.environ | environment | {MARK: str(self.folder)},
            )
        program = Program(name, command, process.pid, psutil.Process(process.pid).create_time())
        programs = self.all()
        names = [other.name for other in programs]
        place = names.index(name) if name in names else len(names)
        self._write([*programs[:place], program, *programs[place + 1 :]])
        return program

    def restart(self, name: str, *, hard: bool = False) -> Program:
        """Stop a process (with SIGKILL when `hard`) and start the same command again."""
        old = self.get(name)
        self.stop(name, hard=hard)
        return self.start(name, old.command, UNBUFFERED)

    def stop(self, name: str, *, hard: bool = False) -> None:
        """Stop one process and wait until it is gone."""
        program = self.get(name)
        if program.alive():
            _end([psutil.Process(program.pid)], hard=hard)

    def stop_all(self) -> int:
        """Stop every process with the control plane's mark; return their number."""
        processes = marked(self.folder)
        _end(processes, wait_s=_STOP_ALL_S)
        return len(processes)

    def tail(self, name: str, lines: int = 12, most_bytes: int = _TAIL_BYTES) -> str:
        """Return the last lines of a process's log, at most `most_bytes` of it."""
        with (self.logs / f"{name}.log").open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - most_bytes))
            text = log.read(most_bytes).decode(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _write(self, programs: list[Program]) -> None:
        draft = self._record.with_suffix(".new")
        draft.write_text(json.dumps([asdict(program) for program in programs], indent=1))
        draft.replace(self._record)


def marked(folder: Path) -> list[psutil.Process]:
    """Return every process of a control plane, including children of its processes."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(MARK) == str(folder):
                processes.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return processes


def _end(processes: list[psutil.Process], *, hard: bool = False, wait_s: float = _STOP_S) -> None:
    for process in processes:
        try:
            process.kill() if hard else process.terminate()
        except psutil.NoSuchProcess:
            continue
    _, left = psutil.wait_procs(processes, timeout=wait_s)
    for process in left:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(left, timeout=_STOP_S)
