"""Runs tasks on a Ray cluster. Its machines need gangsched, but no shared folder."""

import logging
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gangsched.config import ConfigError
from simulator.experiments.task import Task, do
from simulator.scenarios.workload import traces
from simulator.traces import Trace

_LAST = "run.json"
"""The file that marks a run as whole: it is written last."""


def _remote(task: Task, traces_read: Sequence[Trace]) -> dict[str, bytes]:
    """Run a task on a machine of the cluster; return its files."""
    with tempfile.TemporaryDirectory() as folder:
        do(replace(task, folder=Path(folder)), traces_read)
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def on_ray(listed: Sequence[Task], address: str) -> Iterator[Task]:
    """Run tasks on the cluster; yield each when its files are copied to this machine.

    This machine reads each trace once. Ray repeats the runs of a lost machine on another.

    Raises:
        ConfigError: Ray is not installed, or the address has no cluster.

    """
    try:
        import ray  # noqa: PLC0415 -- an extra
    except ImportError as error:
        raise ConfigError("--ray: Ray is missing: pip install 'gangsched[ray]'") from error
    starts_ray = not ray.is_initialized()
    if starts_ray:
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise ConfigError(f"--ray: no cluster at {address!r}: {error}") from error
    try:
        remote: Any = ray.remote(max_retries=3)(_remote)
        read: dict[str, Any] = {}
        waiting: dict[Any, Task] = {}
        for task in listed:
            scenario = task.variant.scenario
            key = scenario.workload.model_dump_json()
            if key not in read:
                read[key] = ray.put(traces(scenario))
            waiting[remote.remote(task, read[key])] = task
        while waiting:
            (done,), _ = ray.wait(list(waiting))
            files: dict[str, bytes] = ray.get(done)
            task = waiting.pop(done)
            task.folder.mkdir(parents=True, exist_ok=True)
            for name in sorted(files, key=lambda name: name == _LAST):
                (task.folder / name).write_bytes(files[name])
            yield task
    finally:
        if starts_ray:
            ray.shutdown()
