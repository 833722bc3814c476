"""Gangs start in their forecast ranges: short histories of `make bench NAME=restart`."""

from gangsched.core.policy import Policies
from policies.cheapest import Cheapest
from policies.drf import Drf
from policies.easy import Easy
from policies.fifo import Fifo
from policies.pack import Pack
from simulator.studies.start_estimates import Figures, ForecastRun

POLICIES = Policies(Fifo(), Pack(), Drf(), Easy(), Cheapest())


def test_starts_lie_in_their_forecast_ranges():
    total = Figures()
    for seed in (5, 13):
        total.forecasts += ForecastRun(seed, POLICIES, last_s=20_000.0).measure().forecasts
    figures = total.flat()
    assert figures["start_estimates"] > 80
    assert figures["start_estimates_inside_their_range"] >= 0.9
    assert figures["start_range_width_p50"] < 6.0, "a range so wide says nothing"
