"""Every line that `make mutations` breaks exists in the core."""

from pathlib import Path

import pytest
from mutation_samples import SAMPLES
from mutations import broken

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.what)
def test_a_sample_changes_a_line_that_is_there_once(sample):
    text = (ROOT / sample.file).read_text()
    assert broken(text, sample) != text
    assert not sample.first or (ROOT / sample.first).exists()
