"""A data cache on process nodes: its readers get each row once, and its pods are a gang."""

import re
from pathlib import Path

import pytest
from test_initializers import logs, wait_over

EXAMPLES = Path(__file__).parents[2] / "examples" / "cache"

pytestmark = pytest.mark.long  # make cache

LOSS = re.compile(r"epoch \d+ loss ([0-9.]+)")


@pytest.fixture
def home(laptop):
    """A namespace on process nodes, with the programs of the example."""
    name = laptop.new_namespace()
    data = {path.name: path.read_text() for path in EXAMPLES.glob("*.py")}
    laptop.core.create_namespaced_config_map(name, {"metadata": {"name": "cache"}, "data": data})
    yield name
    laptop.remove_namespace(name)


def test_two_ranks_train_from_a_cache(laptop, home):
    laptop.apply(home, (EXAMPLES / "data.yaml").read_text())
    assert wait_over(laptop, home, "make-digits")["type"] == "Complete"
    laptop.apply(home, (EXAMPLES / "cache.yaml").read_text())
    said = wait_over(laptop, home, "cached", 120)
    log = logs(laptop, home, "cached", "node")
    assert said["type"] == "Complete", log
    assert len(re.findall(r"epoch \d+: 1797 rows, each once", log)) == 4
    for rank, rows in (0, 898), (1, 899):
        assert f"epoch 0: rank {rank} had {rows} rows" in log
        assert f"epoch 1: rank {rank} had {1797 - rows} rows" in log, "each epoch has other rows"
    losses = [float(text) for text in LOSS.findall(log)]
    assert losses[-1] < losses[0] / 2
