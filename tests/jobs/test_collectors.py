"""Collectors of metrics: the container beside a trial, and what of its log counts."""

import pytest
from test_experiment import CLOCK, TEMPLATE, search, wrong

from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.katib import metrics, trial
from gangsched.jobs.katib.collectors import CONTAINER, sidecar_of, with_collector

MAIN = {"name": "main", "image": "x", "env": [{"name": "A", "value": "1"}]}


def job() -> dict:
    pod = {"containers": [{"name": "proxy", "image": "p"}, MAIN]}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": {"spec": pod}}}


def pod_of(collector: dict) -> dict:
    spec = {"metricsCollector": collector, "primaryContainerName": "main"}
    body = {"metadata": {"name": "t"}, "spec": spec}
    return with_collector(job(), body, "PROGRAM")["spec"]["template"]["spec"]


def kind(name: str, **more) -> dict:
    return {"collector": {"kind": name}, **more}


def at(**place) -> dict:
    return {"source": {"fileSystemPath": place}}


@pytest.mark.parametrize("collector", [{}, kind("StdOut"), kind("None")])
def test_the_log_needs_no_container(collector):
    assert pod_of(collector) == job()["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("collector", "arguments", "folder"),
    [
        (kind("File"), ["text", "/var/log/katib/metrics.log"], "/var/log/katib"),
        (kind("File", **at(path="/o/m.json", format="JSON")), ["json", "/o/m.json"], "/o"),
        (kind("TensorFlowEvent"), ["events", "/var/log/katib/tfevent/"], "/var/log/katib/tfevent/"),
        (kind("TensorFlowEvent", **at(path="/t", kind="Directory")), ["events", "/t"], "/t"),
    ],
)
def test_files_are_shared_with_the_container(collector, arguments, folder):
    pod = pod_of(collector)
    (beside,) = pod["initContainers"]
    assert beside["name"] == CONTAINER
    assert beside["restartPolicy"] == "Always"
    assert beside["image"] == "x"
    assert beside["command"][:2] == ["sh", "-c"]
    assert beside["command"][3:] == ["PROGRAM", *arguments]
    proxy, main = pod["containers"]
    mount = {"name": "metrics-volume", "mountPath": folder}
    assert main["volumeMounts"] == beside["volumeMounts"] == [mount]
    assert "volumeMounts" not in proxy
    assert pod["volumes"] == [{"name": "metrics-volume", "emptyDir": {}}]


def test_a_page_of_the_pod_alone_is_read():
    """A host would let a tenant read pages of others."""
    given = {"httpGet": {"port": 9000, "path": "/m", "host": "10.0.0.1"}}
    (beside,) = pod_of(kind("PrometheusMetric", source=given))["initContainers"]
    assert beside["command"][-2:] == ["prometheus", "http://127.0.0.1:9000/m"]
    (beside,) = pod_of(kind("PrometheusMetric"))["initContainers"]
    assert beside["command"][-1] == "http://127.0.0.1:8080/metrics"


def test_pushed_metrics_stay_in_the_pod():
    pod = pod_of(kind("Push"))
    assert pod["hostAliases"] == [{"ip": "127.0.0.1", "hostnames": ["katib-db-manager.kubeflow"]}]
    assert pod["containers"][1]["env"][-1] == {"name": "KATIB_TRIAL_NAME", "value": "t"}
    assert pod["initContainers"][0]["command"][-1] == "push"


def test_a_container_of_the_user_prints_the_metrics():
    custom = {"name": "mine", "image": "y", "command": ["watch"]}
    collector = {"collector": {"kind": "Custom", "customCollector": custom}, **at(path="/o/log")}
    pod = pod_of(collector)
    (beside,) = pod["initContainers"]
    assert (beside["name"], beside["command"], beside["restartPolicy"]) == (
        "mine",
        ["watch"],
        "Always",
    )
    assert beside["volumeMounts"][0]["mountPath"] == "/o"


@pytest.mark.parametrize(
    ("collector", "said"),
    [
        (kind("Magic"), "collector.kind is 'Magic'; allowed are: StdOut, File"),
        (
            kind("File", **at(path="m.log")),
            "fileSystemPath.path is 'm.log'; it must be an absolute",
        ),
        (kind("File", **at(path="/m.log")), "fileSystemPath.path is '/m.log'"),
        (kind("File", **at(path="/a/../m")), "fileSystemPath.path is '/a/../m'"),
        (kind("File", **at(path="/" + "a" * 2000 + "/b")), "fileSystemPath.path is '/aaa"),
        (kind("File", **at(path=7)), "fileSystemPath.path is 7"),
        (
            kind("File", **at(kind="Directory")),
            "fileSystemPath.kind is 'Directory'; it must be File",
        ),
        (kind("TensorFlowEvent", **at(path="/")), "fileSystemPath.path is '/'"),
        (kind("PrometheusMetric", source={"httpGet": {"port": "http"}}), "httpGet.port is 'http'"),
        (kind("PrometheusMetric", source={"httpGet": {"port": 99999}}), "httpGet.port is 99999"),
        (kind("PrometheusMetric", source={"httpGet": {"path": "@x"}}), "httpGet.path is '@x'"),
        (kind("Custom"), "collector.customCollector is missing"),
    ],
)
def test_what_is_wrong_is_named(collector, said):
    with pytest.raises(ValueError, match=r"^(collector|source)\.") as error:
        sidecar_of(collector)
    assert said in str(error.value)

    def change(spec):
        spec["metricsCollectorSpec"] = collector

    assert "Experiment ns/e: spec.metricsCollectorSpec." in wrong(change)


def test_a_template_without_the_container_is_refused():
    def change(spec):
        spec["metricsCollectorSpec"] = kind("File")

    assert "(Job) has no container main for it; use StdOut" in wrong(change)
    assert TEMPLATE["primaryContainerName"] == "main"
    assert search().body["spec"]["trialTemplate"] == TEMPLATE


def outcome(series: dict, status: dict | None = None, **more) -> dict:
    """Return the status of a trial after a look at its log."""
    body = {
        "metadata": {"name": "t", "namespace": "ns", "uid": "u"},
        "spec": {
            "objective": {"type": "maximize", "objectiveMetricName": "acc"},
            "runSpec": {"apiVersion": "batch/v1", "kind": "Job"},
        },
        "status": status or {},
    }
    parts = {("Job", "t"): {"kind": "Job", "metadata": {"name": "t"}}}
    seen = trial.TrialJobOutcome(series=series, **more)
    return trial.reconcile(Owned(body, parts), seen, CLOCK).status


def test_values_are_kept_when_the_log_is_rotated():
    first = outcome({"acc": [0.9, 0.5], "loss": []}, recent=True)
    second = outcome({"acc": [0.1, 0.6], "loss": [2.0]}, first, recent=True)
    third = outcome({"acc": [], "loss": []}, second, ended="succeeded")
    observed = third["observation"]
    for name, values in (("acc", (0.1, 0.9, 0.6)), ("loss", (2.0, 2.0, 2.0))):
        for strategy, value in zip(("min", "max", "latest"), values, strict=True):
            assert metrics.value_of(observed, name, strategy) == value
    assert ends_of(third) == "TrialSucceeded"


def ends_of(status: dict) -> str:
    return next(c["reason"] for c in status["conditions"] if c["type"] == "Succeeded")


def test_a_trial_that_ends_waits_for_its_whole_log():
    first = outcome({"acc": [0.5]}, recent=True)
    waits = outcome(None, first, ended="succeeded")
    assert "Succeeded" not in [c["type"] for c in waits["conditions"]]


def test_a_trial_without_a_collector_succeeds_without_metrics():
    status = outcome({}, ended="succeeded", without_metrics=True)
    assert "observation" not in status
    assert ends_of(status) == "TrialSucceeded"
