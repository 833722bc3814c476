"""Half the interval of a mean: values of a table of Student's t."""

import pytest

from simulator.experiments.confidence import half_interval


def test_the_interval_is_student_s():
    assert half_interval([1.0, 3.0]) == pytest.approx(12.706, abs=1e-3)
    assert half_interval([1.0, 2.0, 3.0]) == pytest.approx(4.303 / 3**0.5, abs=1e-3)
    assert half_interval([2.0, 2.0]) == 0.0
