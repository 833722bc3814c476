"""Runs on a Ray cluster of this machine: the same files, and no run twice."""

import pyarrow.parquet as pq
import pytest
import yaml
from waiting import patience_s

from gangsched.config import ConfigError
from simulator.experiments.sweep import tasks, variants, work

SMALL = {
    "version": "gangsched.io/simulation/v1",
    "name": "small",
    "cluster": {"nodes": [{"name": "node", "count": 2, "gpus": 8}]},
    "workload": {"traces": [{"format": "gangsched", "path": "jobs.csv"}]},
}


@pytest.fixture(scope="module")
def ray():
    """The package. Each of pytest's workers would import it to collect these tests."""
    return pytest.importorskip("ray")


@pytest.fixture(scope="module")
def cluster(ray):
    """A cluster of one machine, whose workers find the code here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_gcs_server_port_wait_time_s", f"{patience_s(30):.0f}")
        patch.setenv("RAY_worker_register_timeout_seconds", f"{patience_s(60):.0f}")
        patch.setenv("RAY_gcs_server_request_timeout_seconds", f"{patience_s(60):.0f}")
        patch.setenv("RAY_health_check_failure_threshold", "1000")  # slow is not dead
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


@pytest.mark.long  # Ray takes a minute of CPU to start
def test_runs_on_ray_are_the_same_and_stay_done(cluster, tmp_path):
    rows = [f"job-{n},{n * 10},{60 + n},1,8" for n in range(8)]
    (tmp_path / "jobs.csv").write_text("\n".join(["name,at_s,runtime_s,pods,gpus", *rows]) + "\n")
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    found = variants(path, (), ("order=fifo,shortest",))
    (tmp_path / "jobs.csv").rename(tmp_path / "moved.csv")
    with pytest.raises(Exception, match=r"jobs\.csv"):  # read here, before anything is sent
        list(work(tasks(found, (0,), tmp_path / "none"), 1, "auto"))
    (tmp_path / "moved.csv").rename(tmp_path / "jobs.csv")
    there = tasks(found, (0,), tmp_path / "ray")
    assert len(list(work(there, 1, "auto"))) == 2
    here = tasks(found, (0,), tmp_path / "here")
    assert len(list(work(here, 1))) == 2
    for one, other in zip(there, here, strict=True):
        tables = [pq.read_table(task.folder / "jobs.parquet") for task in (one, other)]
        assert tables[0].equals(tables[1])
        assert one.done()
    assert not [task for task in there if not task.done()]


def test_where_there_is_no_cluster_it_is_said(ray, tmp_path, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", _nobody)
    path = tmp_path / "small.yaml"
    path.write_text(yaml.safe_dump(SMALL))
    (tmp_path / "jobs.csv").write_text("name,at_s,runtime_s\na,0,1\n")
    with pytest.raises(ConfigError, match=r"--ray: no cluster at '10\.0\.0\.1:6379'"):
        list(work(tasks(variants(path, (), ()), (0,), tmp_path), 1, "10.0.0.1:6379"))


def _nobody(**_):
    raise ConnectionError("nobody answers")
