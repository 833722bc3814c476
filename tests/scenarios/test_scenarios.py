"""Complaints of other schedulers' users, each with the outcome that they asked for."""

import pytest
from scenario import check, load_all


@pytest.mark.parametrize("scenario", load_all(), ids=lambda one: one.name)
def test_scenario(scenario):
    check(scenario, scenario.run())
