"""The Helm chart creates the objects of the overlays, and installs by the guide's commands."""

import functools
import http.server
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import yaml
from cluster import Cluster
from conftest import a_plane
from pages import items
from waiting import patience_s

from gangsched.config import load_config
from gangsched.local import components
from gangsched.local.nodes import NodeFile
from gangsched.local.plane import PlaneOptions, client_environment
from gangsched.shipped import yaml_documents

ROOT = Path(__file__).parents[2]
CHARTS = ROOT / "manifests" / "chart"
HOME = "gangsched-system"
KIND = {
    "apiVersion": "kubeflow.org/v1",
    "kind": "PyTorchJob",
    "metadata": {"name": "stays", "namespace": "default"},
    "spec": {
        "pytorchReplicaSpecs": {
            "Master": {"template": {"spec": {"containers": [{"name": "pytorch", "image": "x"}]}}}
        }
    },
}


@pytest.fixture(scope="module")
def helm():
    """Helm, built from its Go module."""
    return str(components.ensure(lambda _: None, components.HELM) / "helm")


def run(*command: str, check: bool = True, **more) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, **more)
    if check:
        assert done.returncode == 0, done.stderr
    return done.stdout + ("" if check else done.stderr)


def rendered(helm: str, *values: str) -> dict:
    """Return what Helm would install, kinds included."""
    chart = str(CHARTS / "gangsched")
    flags = [word for value in values for word in ("--set", value)]
    text = run(helm, "template", "gangsched", chart, "-n", HOME, "--include-crds", *flags)
    return objects(yaml_documents(text))


def objects(documents: list[dict]) -> dict[tuple[str, str, str], dict]:
    """Return objects by their names, without what only one of the two ways has."""
    found = {}
    for one in documents:
        metadata = one["metadata"]
        if one["kind"] == "CustomResourceDefinition":
            metadata.pop("labels", None)  # Helm takes the files as they are
        for holder in (metadata, one.get("spec", {}).get("template", {}).get("metadata", {})):
            kept = {
                key: value
                for key, value in (holder.get("annotations") or {}).items()
                if key not in ("helm.sh/resource-policy", "checksum/config")
            }
            if "annotations" in holder:
                holder["annotations"] = kept
                if not kept:
                    del holder["annotations"]
        found[one["kind"], metadata.get("namespace", ""), metadata["name"]] = one
    return found


def overlay(folder: str) -> dict:
    """Return an overlay's objects, by the chart's own reading of kustomize."""
    sys.path.insert(0, str(CHARTS))
    import generate

    return objects(generate.rendered(str(components.program("kubectl")), folder))


def settings(found: dict, tmp_path: Path):
    """Take the settings of gangsched out of its ConfigMap, and read them."""
    config = found.pop(("ConfigMap", HOME, "gangsched-config"))
    path = tmp_path / "config.yaml"
    path.write_text(config["data"]["config.yaml"])
    return load_config(path)


def test_the_templates_are_the_overlays(tmp_path):
    kubectl = str(components.program("kubectl"))
    run(sys.executable, str(CHARTS / "generate.py"), kubectl, str(tmp_path))
    assert {p.name for p in tmp_path.iterdir()} >= {"gangsched.yaml", "extender.yaml"}
    kinds = {path.name for path in (ROOT / "crds").glob("*_*.yaml")}
    assert {path.name for path in (CHARTS / "gangsched" / "crds").iterdir()} == kinds
    for path in tmp_path.iterdir():
        there = (CHARTS / "gangsched" / "templates" / path.name).read_text()
        assert path.read_text() == there, f"{path.name}: run `make chart`"


def test_one_setting_names_the_aliases_wherever_they_count(helm, tmp_path):
    names = ["gangsched", "volcano", "kai-scheduler"]
    found = rendered(helm, f"config.scheduler_aliases={{{','.join(names[1:])}}}")
    assert settings(found, tmp_path).scheduler_aliases == ("volcano", "kai-scheduler")
    policies = [one for key, one in found.items() if key[0].endswith("AdmissionPolicy")]
    conditions = [
        condition["expression"]
        for one in policies
        for condition in one["spec"].get("matchConditions", [])
        if condition["name"] == "ours"
    ]
    assert len(conditions) == 3
    assert all('in ["gangsched","volcano","kai-scheduler"]' in one for one in conditions)
    assert not any('== "gangsched"' in one for one in conditions)
    config = found["ConfigMap", HOME, "gangsched-kube-scheduler-config"]["data"]
    profiles = yaml.safe_load(config["kube-scheduler-config.yaml"])["profiles"]
    assert [one.pop("schedulerName") for one in profiles] == names
    assert profiles[0] == profiles[1] == profiles[2]


def test_a_value_under_the_former_name_of_a_setting_replaces_the_default(helm, tmp_path):
    found = rendered(helm, "config.past_config_map=mine/past")
    assert settings(found, tmp_path).gang_history_config_map == "mine/past"


@pytest.mark.parametrize("binding", ["extender", "direct"])
def test_helm_installs_what_kustomize_does(helm, tmp_path, binding):
    found = rendered(helm, f"binding={binding}")
    wanted = overlay(f"overlays/{binding}")
    del wanted["Namespace", "", HOME]
    assert settings(found, tmp_path) == settings(wanted, tmp_path)
    assert found.keys() == wanted.keys()
    for key, one in wanted.items():
        assert found[key] == one, key


def test_monitoring_is_a_value(helm):
    found = rendered(helm, "monitoring.enabled=true")
    for key, one in overlay("monitoring").items():
        assert found[key] == one, key


@pytest.mark.parametrize(
    ("name", "values"),
    [("web", "web.enabled=true"), ("visibility", "web.enabled=true,web.visibility=true")],
)
def test_the_pages_are_a_value(helm, name, values):
    wanted = overlay(f"overlays/{name}")
    del wanted["Namespace", "", HOME]
    found = rendered(helm, values)
    assert found.keys() == wanted.keys()
    for key, one in wanted.items():
        if key[::2] != ("ConfigMap", "gangsched-config"):
            assert found[key] == one, key


def test_records_may_have_a_claim_of_one_pod(helm):
    found = rendered(helm, "history.claim=records", "replicas=1")
    volumes = found["Deployment", HOME, "gangsched"]["spec"]["template"]["spec"]["volumes"]
    claimed = {"name": "records", "persistentVolumeClaim": {"claimName": "records"}}
    assert claimed in volumes
    chart = str(CHARTS / "gangsched")
    text = run(helm, "template", "x", chart, "--set", "history.claim=records", check=False)
    assert "history.claim=records: one pod writes to a claim, and replicas is 2" in text


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ("binding=sideways", "binding"),
        ("replicas=0", "replicas"),
        ("pytroch.enabled=true", "pytroch"),
        ("pytorch.enabled=1", "enabled"),
        ("history.claim=A_B", "claim"),
    ],
)
def test_a_wrong_value_is_named(helm, values, said):
    command = (helm, "template", "x", str(CHARTS / "gangsched"), "--set", values)
    text = run(*command, check=False)
    assert "values don't meet the specifications of the schema" in text
    assert said in text


@pytest.mark.parametrize("chart", ["gangsched", "training-operator"])
def test_helm_has_nothing_to_say_against_it(helm, chart):
    assert "0 chart(s) failed" in run(helm, "lint", str(CHARTS / chart))


@pytest.fixture
def empty():
    """A cluster that knows nothing of us yet."""
    with a_plane("test-chart", NodeFile(nodes=()), PlaneOptions(binding="off", bare=True)) as plane:
        yield Cluster(plane, "off")


def test_the_first_guides_commands(helm, empty, tmp_path):
    """Its `helm repo add` has another address here; Kubeflow has no such chart."""
    packages = tmp_path / "repository"
    run(helm, "package", str(CHARTS / "training-operator"), "-d", str(packages))
    run(helm, "repo", "index", str(packages))
    serve = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(packages))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    homes = {f"HELM_{word}_HOME": str(tmp_path / word) for word in ("CACHE", "CONFIG", "DATA")}
    variables = os.environ | client_environment(empty.plane) | homes
    try:
        run(helm, "repo", "add", "kubeflow", address, env=variables)
        run(helm, "repo", "update", env=variables)
        run(
            *(helm, "install", "training-operator", "kubeflow/training-operator"),
            *("--namespace", "kubeflow", "--create-namespace", "--set", "pytorch.enabled=true"),
            env=variables,
        )
        assert "deployed" in run(helm, "list", "-n", "kubeflow", env=variables)
        there = empty.json("deployments", "-n", "kubeflow")["items"]
        assert "training-operator" in [one["metadata"]["name"] for one in there]
        patience = f"--timeout={patience_s(30):.0f}s"
        empty.kubectl("wait", "--for=condition=Established", "crd", "--all", patience)
        kind = json.dumps(KIND)  # established, and served a moment later
        made = "pytorchjob.kubeflow.org/stays created"  # a refusal speaks of created kinds too
        empty.wait(
            lambda: made in empty.kubectl("apply", "-f", "-", stdin=kind, check=False),
            "the kind to be served",
        )
        more = ("--reuse-values", "--set", "binding=direct", "-n", "kubeflow")
        run(
            helm, "upgrade", "training-operator", "kubeflow/training-operator", *more, env=variables
        )
        there = empty.json("deployments", "-n", "kubeflow")["items"]
        assert [one["metadata"]["name"] for one in there] == ["training-operator"]
        run(helm, "uninstall", "training-operator", "-n", "kubeflow", env=variables)
        assert empty.json("pytorchjob", "stays")["metadata"]["name"] == "stays"
        (line,) = [one.text for one in items("docs/operations.md") if one.heading == "With Helm"]
        assert "STATUS: deployed" in run(helm, *line.split()[1:], env=variables, cwd=ROOT)
    finally:
        server.shutdown()
