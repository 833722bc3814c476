"""What an administrator should know of a scenario before it runs."""

from collections.abc import Iterable, Iterator, Sequence

from gangsched.core.model.refusal import plural
from simulator.experiments.run import never_run, prepare
from simulator.experiments.task import Variant
from simulator.scenarios.scenario import Scenario
from simulator.scenarios.workload import traces
from simulator.traces import Trace

_NAMED = 3
_SAID = 10


def notices(variants: Sequence[Variant], seed: int | None) -> list[str]:
    """Return a sentence for each reason for which jobs can never run, or a queue is wrong.

    Jobs are those of one seed, or of the first that a scenario has.

    Raises:
        ConfigError, TraceError: a scenario cannot be run.

    """
    said: dict[str, list[str]] = {}
    read: dict[object, list[Trace]] = {}
    for variant in variants:
        scenario = variant.scenario
        found = read.get(_traces(scenario))
        if found is None:
            found = read[_traces(scenario)] = traces(scenario)
        for sentence in _of(scenario, found, scenario.seeds[0] if seed is None else seed):
            said.setdefault(sentence, []).append(variant.label)
    lines = [
        sentence if len(labels) == len(variants) else f"{', '.join(labels)}: {sentence}"
        for sentence, labels in said.items()
    ]
    more = len(lines) - _SAID
    return lines[:_SAID] + ([f"and {plural(more, 'warning')} more"] if more > 0 else [])


def _traces(scenario: Scenario) -> object:
    """Return what the jobs of a scenario's traces depend on."""
    gpus = max((group.gpus for group in scenario.cluster.nodes), default=0)
    return scenario.folder, scenario.workload.traces, gpus


def _of(scenario: Scenario, found: Sequence[Trace], seed: int) -> Iterator[str]:
    result, jobs, start = prepare(scenario, seed, found)
    tree = result.tree()
    for queue in tree.top_down():
        wrong = tree.notices(queue) if queue in tree else [tree.problems[queue]]
        yield from (f"queue {queue}: {sentence}" for sentence in wrong)
    names: dict[str, list[str]] = {}
    for gang, why in never_run(result, jobs, start).items():
        names.setdefault(why.message, []).append(gang.partition("/")[2])
    for message, some in names.items():
        yield f"{named(some)} can never run (seed {seed}): {message}"


def named(names: Iterable[str], count: int | None = None) -> str:
    """Write some names, and how many there are beside; `count` where not all names are there."""
    some = list(names)
    more = (len(some) if count is None else count) - len(some[:_NAMED])
    return ", ".join(some[:_NAMED]) + (f" and {more} more" if more else "")
