"""CP-SAT on a linear program, objective after objective, reproducibly.

One worker, a fixed seed and deterministic time make two runs of one program equal; wall clock is
only a guard against a machine that stalls.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from math import ceil

from gangsched.core.placement.optimal.linear import Linear
from gangsched.core.solver import cp_model

_WALL_S = 20.0
_UNBOUNDED = 2**60


class SolverStatus(Enum):
    """The result of the solver."""

    OPTIMAL = auto()
    FEASIBLE = auto()
    INFEASIBLE = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True)
class Solved:
    """Values of all variables (empty without a solution), the objectives, and their bounds."""

    outcome: SolverStatus
    values: list[int]
    cost: tuple[int, ...] = ()
    bound: tuple[int, ...] = ()
    spent: float = 0.0


def solve(
    linear: Linear, hint: list[int] | None, budget: float, floor: tuple[int, ...] = ()
) -> Solved:
    """Minimise the objectives in order; those before keep the values that they reached.

    `hint` is a known solution (or None), `budget` deterministic seconds for everything, `floor`
    known lower bounds: an objective that is at its floor already is not solved for.
    """
    model = cp_model.CpModel()
    variables = [model.new_int_var(low, high, "") for low, high in linear.bounds]
    for terms, low, high in linear.constraints:
        model.add_linear_constraint(
            _sum(variables, terms),
            -_UNBOUNDED if low is None else low,
            _UNBOUNDED if high is None else high,
        )
    best = hint
    cost: list[int] = []
    bound: list[int] = []
    optimal = True
    left = budget
    for number, terms in enumerate(linear.objectives or [[]]):
        least = floor[number] if number < len(floor) else None
        reached = None if best is None else sum(best[v] * c for v, c in terms)
        if reached is not None and (reached == least or not terms):
            lower = reached
        else:
            model.clear_hints()  # type: ignore[no-untyped-call]
            for variable, value in zip(variables, best or (), strict=False):
                model.add_hint(variable, value)
            model.minimize(_sum(variables, terms))
            solver = _solver(max(left, 0.001))
            status = solver.solve(model)
            left -= solver.response_proto.deterministic_time
            if status == cp_model.INFEASIBLE and best is None:
                return Solved(SolverStatus.INFEASIBLE, [], spent=budget - left)
            if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
                if best is None or reached is None:
                    return Solved(SolverStatus.UNKNOWN, [], spent=budget - left)
                optimal = False
                lower = least if least is not None else _lower(linear, terms)
            else:
                values = [solver.value(variable) for variable in variables]
                value_sum = sum(values[v] * c for v, c in terms)
                if reached is None or value_sum <= reached:
                    best, reached = values, value_sum
                proved = status == cp_model.OPTIMAL
                lower = reached if proved else ceil(solver.best_objective_bound - 1e-6)
                optimal = optimal and proved
        assert reached is not None  # noqa: S101
        cost.append(reached)
        bound.append(lower)
        if terms:
            model.add(_sum(variables, terms) <= reached)
    assert best is not None  # noqa: S101
    outcome = SolverStatus.OPTIMAL if optimal else SolverStatus.FEASIBLE
    return Solved(outcome, best, tuple(cost), tuple(bound), budget - left)


def _sum(variables: list[cp_model.IntVar], terms: list[tuple[int, int]]) -> cp_model.LinearExprT:
    return cp_model.LinearExpr.weighted_sum(
        [variables[variable] for variable, _ in terms], [factor for _, factor in terms]
    )


def _solver(budget: float) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = 0
    solver.parameters.max_deterministic_time = budget
    solver.parameters.max_time_in_seconds = _WALL_S
    solver.parameters.symmetry_level = 0
    # The full linear relaxation proves four times as many of our programs in the same time.
    solver.parameters.linearization_level = 2
    return solver


def _lower(linear: Linear, terms: list[tuple[int, int]]) -> int:
    """Return the lower bound of a sum that follows from the bounds of its variables."""
    return sum(linear.bounds[v][0 if c > 0 else 1] * c for v, c in terms)
