"""The study of purchases: its optimum is one, and its figures come from runs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.studies.purchases import least_node_s, measure_purchases

TIMES = st.integers(0, 9)
GANG = st.tuples(TIMES, st.integers(1, 5), st.integers(1, 3)).map(
    lambda drawn: (float(drawn[0]), float(drawn[0] + drawn[1]), drawn[2])
)


def least_by_trying(used, boot_s):
    """Try every number of nodes in every second (dynamic programming); a new one costs its boot."""
    most = sum(nodes for *_, nodes in used)
    cost = {0: 0.0}
    for second in range(15):
        wanted = sum(nodes for start, end, nodes in used if start <= second < end)
        cost = {
            there: there + min(paid + boot_s * max(there - before, 0)
                               for before, paid in cost.items())
            for there in range(wanted, most + 1)
        }  # fmt: skip
    return min(cost.values())


@given(used=st.lists(GANG, max_size=5), boot_s=st.integers(0, 6))
def test_no_plan_of_nodes_costs_less(used, boot_s):
    assert least_node_s(used, float(boot_s)) == pytest.approx(least_by_trying(used, boot_s))


def test_purchases_start_what_fits_at_little_more_than_the_least():
    figures = measure_purchases(range(1), 20).flat()
    assert figures["gangs_that_fit_started_share"] == 1.0
    assert 1.0 <= figures["cost_ratio_to_optimum"] < 2.0
    assert figures["start_estimates"] > 5
