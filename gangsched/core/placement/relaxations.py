"""Ways for a gang to request less, each as a changed gang and as text for its user."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from gangsched.core.bounds import CHANGES_TRIED
from gangsched.core.model.constraints import Constraints, LevelRequest
from gangsched.core.model.gangs import PendingGang
from gangsched.core.model.refusal import plural
from gangsched.core.placement.constraints import ResolvedConstraints


@dataclass(frozen=True, slots=True)
class Relaxation:
    """One constraint loosened by one step.

    `kind` and `message` become a Remedy; `binding` describes the constraint for a refusal.
    """

    kind: str
    message: str
    binding: str
    waiting: PendingGang


def relaxations(waiting: PendingGang, scope: ResolvedConstraints) -> Iterator[Relaxation]:
    """Yield relaxations of one constraint each, the smallest change first."""
    yield from islice(_relaxations(waiting, scope), CHANGES_TRIED.most)


def _relaxations(waiting: PendingGang, scope: ResolvedConstraints) -> Iterator[Relaxation]:
    asked = waiting.constraints
    if len(asked.gpu_types) > 0:
        yield Relaxation(
            "gpu-kind",
            "any GPU type",
            f"on GPUs of type {' or '.join(asked.gpu_types)}",
            _with(waiting, replace(asked, gpu_types=())),
        )
    if asked.exclusive is not None:
        level = _name(scope, scope.exclusive)
        yield Relaxation(
            "exclusive",
            f"sharing its {level}s with other gangs",
            f"in {level}s without other gangs",
            _with(waiting, replace(asked, exclusive=None)),
        )
    yield from _wider_levels(waiting, scope)
    yield from _slices(waiting, scope)
    for spread in asked.spread:
        rest = tuple(other for other in asked.spread if other != spread)
        yield Relaxation(
            "spread",
            f"more than {plural(spread.pods_max, 'pod')} in one {spread.level}",
            f"with at most {plural(spread.pods_max, 'pod')} in one {spread.level}",
            _with(waiting, replace(asked, spread=rest)),
        )
    if asked.avoid or waiting.excluded_nodes:
        names = ", ".join(dict.fromkeys((*asked.avoid, *waiting.excluded_nodes)))
        yield Relaxation(
            "avoid",
            f"use of {names}",
            f"without {names}",
            replace(waiting, excluded_nodes=(), constraints=replace(asked, avoid=())),
        )


def _wider_levels(waiting: PendingGang, scope: ResolvedConstraints) -> Iterator[Relaxation]:
    asked = waiting.constraints
    level = scope.rules.required
    if level is not None:
        tight = _name(scope, level)
        for wider in range(min(level, scope.depth) - 1, -1, -1):
            near = replace(asked.near, required=_name(scope, wider))
            yield Relaxation(
                "level",
                f"{_name(scope, wider)} instead of {tight}",
                f"in one {tight}",
                _with(waiting, replace(asked, near=near, fabric_required=False)),
            )
        near = replace(asked.near, required=None)
        yield Relaxation(
            "level",
            f"more than one {tight}",
            f"in one {tight}",
            _with(waiting, replace(asked, near=near, fabric_required=False)),
        )
    for role, near in waiting.near_role:
        if near.required is not None:
            yield Relaxation(
                "level",
                f"more than one {near.required} for role {role}",
                f"with role {role} in one {near.required}",
                _with_role(waiting, role, replace(near, required=None)),
            )


def _slices(waiting: PendingGang, scope: ResolvedConstraints) -> Iterator[Relaxation]:
    asked = waiting.constraints
    for index, slice_request in enumerate(asked.near.slices):
        fewer = asked.near.slices[:index] + asked.near.slices[index + 1 :]
        yield Relaxation(
            "level",
            f"slices of {slice_request.size} across {slice_request.level}s",
            f"with every {slice_request.size} pods in one {slice_request.level}",
            _with(waiting, replace(asked, near=replace(asked.near, slices=fewer))),
        )
    for role, near in waiting.near_role:
        for index, slice_request in enumerate(near.slices):
            fewer = near.slices[:index] + near.slices[index + 1 :]
            yield Relaxation(
                "level",
                f"slices of {slice_request.size} across {slice_request.level}s for role {role}",
                f"with every {slice_request.size} pods of role {role} in one {slice_request.level}",
                _with_role(waiting, role, replace(near, slices=fewer)),
            )


def without_constraints(waiting: PendingGang) -> PendingGang:
    """Return the gang without constraints: it requests capacity alone."""
    return replace(
        waiting, constraints=Constraints(), near_role=(), excluded_nodes=(), pods_per_node_max=None
    )


def with_fewer(waiting: PendingGang, count: int, unit: int) -> PendingGang:
    """Return the gang with only its first `count` members, slices kept whole."""
    kept = tuple(sorted(waiting.members, key=lambda member: member.rank))
    members = kept[: count // unit * unit]
    return replace(waiting, members=members, members_min=len(members), role_members_min=())


def _name(scope: ResolvedConstraints, level: int | None) -> str:
    return scope.level_name(scope.depth if level is None else level)


def _with(waiting: PendingGang, constraints: Constraints) -> PendingGang:
    return replace(waiting, constraints=constraints)


def _with_role(waiting: PendingGang, role: str, near: LevelRequest) -> PendingGang:
    changed = tuple((name, near if name == role else old) for name, old in waiting.near_role)
    return replace(waiting, near_role=changed)
