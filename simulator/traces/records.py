"""The records of gangs that ended, which `gangsched run` keeps, as a trace."""

from collections.abc import Iterator
from pathlib import Path

from gangsched.config import ConfigError
from gangsched.recording.gang_record import GangRecord
from gangsched.recording.history_file import HistoryQuery, read_history
from simulator.jobs import Job
from simulator.traces.rows import COUNT_MAX, Left, TraceError
from simulator.traces.shapes import kubernetes_name


def recorded_gangs(path: Path, left: Left, _: int) -> Iterator[Job]:
    """Yield the gangs of a file that ran.

    Raises:
        TraceError: the file is missing, or is no history.

    """
    try:
        for record in read_history(path, HistoryQuery(limit=COUNT_MAX)):
            if record.ran_s > 0:
                yield _job(record)
            else:
                left.out("never started")
    except ConfigError as error:
        raise TraceError(str(error)) from error


def _job(record: GangRecord) -> Job:
    return Job(
        kubernetes_name(f"{record.namespace}-{record.name}"),
        record.submitted_s,
        record.ran_s,
        max(record.pods, 1),
        max(round(record.gpus_per_pod), 0),
        queue=record.queue,
        user=record.user,
        priority=record.priority,
        estimate_s=record.expected_runtime_s,
    )
