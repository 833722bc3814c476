"""Warnings about a scenario before it runs."""

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
    """Return a sentence for each reason why jobs can never run, and each wrong queue.

    The jobs are those of `seed`; without one, those of the first seed of each scenario.

    Raises:
        ConfigError, TraceError: a scenario cannot be run.

    """
    variants_of: dict[str, list[str]] = {}
    traces_by_key: dict[object, list[Trace]] = {}
    for variant in variants:
        scenario = variant.scenario
        traces_read = traces_by_key.get(_traces(scenario))
        if traces_read is None:
            traces_read = traces_by_key[_traces(scenario)] = traces(scenario)
        for sentence in _of(scenario, traces_read, scenario.seeds[0] if seed is None else seed):
            variants_of.setdefault(sentence, []).append(variant.label)
    lines = [
        sentence if len(labels) == len(variants) else f"{', '.join(labels)}: {sentence}"
        for sentence, labels in variants_of.items()
    ]
    others = len(lines) - _SAID
    return lines[:_SAID] + ([f"and {plural(others, 'warning')} more"] if others > 0 else [])


def _traces(scenario: Scenario) -> object:
    """Return a key of everything that the jobs of a scenario's traces depend on."""
    gpus = max((group.gpus for group in scenario.cluster.nodes), default=0)
    return scenario.folder, scenario.workload.traces, gpus


def _of(scenario: Scenario, traces_read: Sequence[Trace], seed: int) -> Iterator[str]:
    result, jobs, start = prepare(scenario, seed, traces_read)
    tree = result.tree()
    for queue in tree.top_down():
        wrong = tree.notices(queue) if queue in tree else [tree.problems[queue]]
        yield from (f"queue {queue}: {sentence}" for sentence in wrong)
    names: dict[str, list[str]] = {}
    for gang, why in never_run(result, jobs, start).items():
        names.setdefault(why.message, []).append(gang.partition("/")[2])
    for message, listed in names.items():
        yield f"{list_names(listed)} can never run (seed {seed}): {message}"


def list_names(names: Iterable[str], count: int | None = None) -> str:
    """Return the first names and the number of the others; `count` if `names` are not all."""
    listed = list(names)
    more = (len(listed) if count is None else count) - len(listed[:_NAMED])
    return ", ".join(listed[:_NAMED]) + (f" and {more} more" if more else "")
