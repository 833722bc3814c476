"""Which placeholders to create, to show to autoscalers and to delete, as a pure function."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from gangsched.autoscaling_config import PlaceholderConfig
from gangsched.core.model.queues import GpuTypes
from gangsched.core.planning.admission import charge_if_allowed
from gangsched.core.quota.usage import Usage
from gangsched.kube.provisioning.demand import GangDemand
from gangsched.kube.provisioning.placeholders.pods import GroupKey, Placeholder
from gangsched.kube.provisioning.request import required_sets

_RETRY_MAX_S = 3600.0


@dataclass(frozen=True, slots=True)
class Tries:
    """How often nodes were asked for in vain, and from when on they may be asked for again."""

    count: int = 0
    next_s: float = 0.0


@dataclass(slots=True)
class PlaceholderSteps:
    """What to change now. No group is marked before all of its placeholders exist."""

    create: list[tuple[GangDemand, GroupKey, tuple[int, ...]]] = field(default_factory=list)
    """Gangs with the numbers of the placeholders that are missing."""
    mark: list[Placeholder] = field(default_factory=list)
    delete: list[Placeholder] = field(default_factory=list)
    late: list[tuple[GangDemand, GroupKey]] = field(default_factory=list)
    """Gangs with placeholders that are deleted because no nodes came."""


def decide_placeholders(
    wants: Sequence[GangDemand],
    placeholders: Iterable[Placeholder],
    tries: Mapping[str, Tries],
    usage: Usage,
    types: GpuTypes,
    config: PlaceholderConfig,
    now_s: float,
) -> PlaceholderSteps:
    """Return what to change. `wants` are in the order in which gangs get nodes.

    A gang has placeholders only with quota beside all gangs before it. Gangs that have some come
    first. `tries` are by the base of a demand.
    """
    steps, usage = PlaceholderSteps(), usage.copy()
    groups = _groups(placeholders)
    current = {key: pods for key, pods in groups.items() if _is_latest(key, groups)}
    by_base = {base: pods for (base, _), pods in current.items()}
    live: Counter[str] = Counter()
    kept: set[GroupKey] = set()
    pods_left = config.pods_max
    for want in sorted(wants, key=lambda want: want.base not in by_base):
        if want.pending is None or want.base is None:
            continue  # it has its nodes, or waits for something else
        existing = by_base.get(want.base)
        total = pod_count(want)
        namespace = want.gang.partition("/")[0]
        full = live[namespace] >= config.namespace_max or live.total() >= config.gangs_max
        if existing is None:
            tried = tries.get(want.base, Tries())
            may_ask = want.lacks and tried.count < config.attempts and now_s >= tried.next_s
            if not may_ask or full or total > pods_left:
                continue
        if not charge_if_allowed(want.pending, usage, types):
            continue
        if existing is not None and _is_late(existing, config, now_s):
            steps.late.append((want, existing[0].key))
            continue
        key = existing[0].key if existing else (want.base, tries.get(want.base, Tries()).count + 1)
        live[namespace] += 1
        pods_left -= total
        kept.add(key)
        there = {one.index for one in existing or ()}
        missing = tuple(index for index in range(total) if index not in there)
        if missing:
            steps.create.append((want, key, missing))
        else:
            steps.mark += [one for one in existing or () if not one.marked]
    steps.delete = [one for key, pods in groups.items() if key not in kept for one in pods]
    return steps


def pod_count(want: GangDemand) -> int:
    """Return how many pods of a gang have to start."""
    return sum(pods.count for pods in required_sets(want.pending)) if want.pending else 0


def next_try(tried: Tries, config: PlaceholderConfig, now_s: float) -> Tries:
    """Return the tries after one more in vain."""
    pause_s = min(config.retry_s * 2.0 ** min(tried.count, 20), _RETRY_MAX_S)
    return Tries(tried.count + 1, now_s + pause_s)


def _groups(placeholders: Iterable[Placeholder]) -> dict[GroupKey, list[Placeholder]]:
    groups: dict[GroupKey, list[Placeholder]] = defaultdict(list)
    for one in placeholders:
        groups[one.key].append(one)
    return groups


def _is_latest(key: GroupKey, groups: Mapping[GroupKey, object]) -> bool:
    base, attempt = key
    return all(other <= attempt for one, other in groups if one == base)


def _is_late(group: Sequence[Placeholder], config: PlaceholderConfig, now_s: float) -> bool:
    return now_s - min(one.created_s for one in group) > config.late_s
