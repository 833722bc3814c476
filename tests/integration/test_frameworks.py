"""TensorFlow, JAX and XGBoost: `make frameworks` installs them and runs these tests."""

import importlib.util
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "frameworks"


def needs(module: str) -> pytest.MarkDecorator:
    """Skip where a library is not installed: together they are larger than all else."""
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"{module} is not installed; see make frameworks")


CASES = {
    "tensorflow-workers": (
        "TFJob",
        {"chief-0": "chief 0 of 2: done", "worker-0": "worker 0 of 2: done"},
    ),
    "tensorflow-servers": ("TFJob", {"chief-0": "weights live on /job:ps/replica:0/task:0"}),
    "jax": (
        "JAXJob",
        {
            "worker-0": "process 0 of 2: the ranks are [0, 1]",
            "worker-1": "process 1 of 2: the ranks are [0, 1]",
        },
    ),
    "xgboost": ("XGBoostJob", {"master-0": "of 2: loss 0.", "worker-0": "of 2: loss 0."}),
}


@pytest.fixture(scope="module")
def home(laptop):
    """A namespace on process nodes, with the programs."""
    name = laptop.new_namespace()
    data = {path.name: path.read_text() for path in EXAMPLES.glob("*.py")}
    body = {"metadata": {"name": "frameworks"}, "data": data}
    laptop.core.create_namespaced_config_map(name, body)
    yield name
    laptop.remove_namespace(name)


@pytest.mark.parametrize(
    "name", [pytest.param(case, marks=needs(case.split("-")[0])) for case in CASES]
)
def test_it_trains(laptop, home, name):
    kind, wanted = CASES[name]
    laptop.apply(home, (EXAMPLES / f"{name}.yaml").read_text())
    laptop.wait(
        lambda: {"Succeeded", "Failed"} & set(laptop.conditions(home, name, kind)), "its end", 150
    )
    logs = {pod: laptop.kubectl("logs", "-n", home, f"{name}-{pod}") for pod in wanted}
    assert laptop.is_true(home, name, "Succeeded", kind), logs
    for pod, line in wanted.items():
        assert line in logs[pod]
