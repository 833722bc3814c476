"""A small integer linear program, apart from any solver: CP-SAT here, others in benchmarks."""

from dataclasses import dataclass, field

Terms = list[tuple[int, int]]
"""(variable, coefficient) pairs."""


@dataclass(slots=True)
class Linear:
    """Integer variables with bounds, linear constraints, and objectives to minimise in order."""

    bounds: list[tuple[int, int]] = field(default_factory=list)
    constraints: list[tuple[Terms, int | None, int | None]] = field(default_factory=list)
    objectives: list[Terms] = field(default_factory=list)

    def variable(self, low: int, high: int) -> int:
        """Add a variable; return its number."""
        self.bounds.append((low, high))
        return len(self.bounds) - 1

    def add(self, terms: Terms, low: int | None, high: int | None) -> None:
        """Demand low <= sum(terms) <= high; None leaves a side open."""
        self.constraints.append((terms, low, high))
