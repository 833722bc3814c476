"""The formats of traces: what each column becomes, what is dropped, what is assumed.

Sources: Philly (Jeon et al., ATC'19), ITP (Gu et al., ASPLOS'23), Muri (Zhao et al., SIGCOMM'22),
Tiresias (Gu et al., NSDI'19), ElasticFlow (ASPLOS'23), Gavel (Narayanan et al., OSDI'20), Pollux
(Qiao et al., OSDI'21), Sia (Jayaram Subramanya et al., SOSP'23), openb (Weng et al., ATC'23), SWF
(Feitelson's Parallel Workloads Archive, version 2.2), sacct (Slurm's manual page).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from simulator.jobs import Job
from simulator.traces import logs, records, tables
from simulator.traces.rows import Left

Read = Callable[[Path, Left, int], Iterator[Job]]
"""Yields the jobs of a file for a number of GPUs per node; times are those of the file."""


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its description and its reader.

    An `ordered` file lists jobs by arrival; jobs of other formats are sorted.
    """

    name: str
    read: Read
    maps: str
    drops: str = "nothing"
    assumes: str = "nothing"
    ordered: bool = False


_WHOLE = "jobs with more GPUs than a node has become equal pods"
_KNOWN: Sequence[Format] = (
    Format(
        "philly",
        tables.Table("timestamp", "duration", "num_gpus", queue="cluster", clock=True),
        "timestamp, duration, num_gpus; cluster (a virtual cluster) becomes the queue",
        "gpu_time (duration times GPUs)",
        f"times are UTC; {_WHOLE}",
    ),
    Format(
        "itp",
        tables.Table("submission_time", "duration", "num_gpu", name="job_id"),
        "job_id, submission_time, duration, num_gpu",
        "models, iterations and deadlines, where the file has them",
        f"one file is one queue; {_WHOLE}",
    ),
    Format(
        "muri",
        tables.iterations,
        "submit_time (ms), num_gpu; run time is iterations times iteration_time (ms)",
        "duration (informative only), resource times, priority",
        _WHOLE,
    ),
    Format(
        "tiresias",
        tables.Table("submit_time", "duration", "num_gpu", name="job_id"),
        "job_id, submit_time, duration, num_gpu",
        "model, iterations, interval",
        _WHOLE,
    ),
    Format(
        "elasticflow",
        tables.Table("submit_time", "duration", "num_gpu", name="job_id"),
        "job_id, submit_time, duration, num_gpu",
        "model, iterations, deadline (ddl), batch size",
        _WHOLE,
    ),
    Format(
        "pollux",
        tables.applications,
        "name, time, num_replicas",
        "batch_size; that jobs are elastic",
        "a job takes the middle of its application's class of GPU-hours (Pollux, section 5.1)",
    ),
    Format(
        "gavel",
        logs.gavel,
        "arrival, scale factor; run time is the steps at the throughput on V100s",
        "command, weight, SLO",
        _WHOLE,
    ),
    Format(
        "openb",
        tables.openb,
        "name, creation_time to deletion_time, cpu_milli, memory_mib, num_gpu, gpu_milli, gpu_spec",
        "qos, pod_phase, scheduled_time",
        "lists without times: a pod a second, which never ends",
    ),
    Format(
        "swf",
        logs.swf,
        "submit, run, requested (else used) processors, requested time, user, queue",
        "wait, CPU time, memory, status, group, executable, partition, dependencies",
        f"a processor is a GPU; {_WHOLE}",
        ordered=True,
    ),
    Format(
        "sacct",
        logs.sacct,
        "Submit, Start to End, AllocTRES, Timelimit, User, NNodes; Account, else Partition, "
        "becomes the queue (sacct -a -P -o JobID,JobName,User,Account,Partition,Submit,Start,End,"
        "NNodes,AllocTRES,Timelimit)",
        "job steps, states, nodes' names",
        "times are UTC; a job without GPUs is kept with its nodes alone",
    ),
    Format(
        "history",
        records.recorded_gangs,
        "gangs that ran: name, submission, time in all runs, pods, GPUs of the largest pod, queue, "
        "user, priority and expected run time (the file of the setting history)",
        "gangs that never started, outcomes, waits, nodes",
        "each pod has as many GPUs as the largest; a preempted gang runs for the time of all its "
        "runs",
    ),
    Format(
        "gangsched",
        tables.own,
        "name, at_s, runtime_s and, where there: pods, gpus (a pod), queue, user, priority, "
        "estimate_s, checkpoint_s; CSV or Parquet",
    ),
)  # fmt: skip

FORMATS = {known.name: known for known in _KNOWN}
