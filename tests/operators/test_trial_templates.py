"""Templates of trials in ConfigMaps: what is read, of which namespace, and hostile texts."""

import asyncio
import json

import pytest
from evaluated import Here

from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.katib.experiment import fill_template
from gangsched.kube.client.errors import NotFound
from gangsched.operators.job_kind import BlockedError, InvalidJobError
from gangsched.operators.kinds.experiment import experiment_kind
from gangsched.operators.kinds.trial_template import PUBLISHED, TrialTemplates
from gangsched.operators.search.template_text import TemplateError, parsed

TEXT = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: ${trialParameters.workers}
      template:
        spec:
          containers:
          - name: pytorch
            image: x
            command: [python, train.py, --lr=${trialParameters.lr}, "${trialParameters.workers}"]
"""
PARAMETERS = [{"name": "lr", "reference": "lr"}, {"name": "workers", "reference": "n"}]


class Client:
    """An API server that has ConfigMaps."""

    def __init__(self, **maps: dict) -> None:
        self.maps = maps
        self.read: list[str] = []

    async def get(self, path: str, **_) -> bytes:
        self.read.append(path)
        namespace, name = path.split("/")[4], path.split("/")[6]
        if f"{namespace}__{name}" not in self.maps:
            raise NotFound(404, "not found")
        return json.dumps(self.maps[f"{namespace}__{name}"]).encode()


def config_map(text: str = TEXT, version="1", **labels: str) -> dict:
    metadata = {"uid": "m", "resourceVersion": version, "labels": labels}
    return {"metadata": metadata, "data": {"t.yaml": text}}


def experiment(**source) -> Owned:
    source = {"configMapName": "templates", "templatePath": "t.yaml"} | source
    spec = {
        "objective": {"type": "maximize", "objectiveMetricName": "m"},
        "algorithm": {"algorithmName": "random"},
        "parameters": [
            {"name": "lr", "parameterType": "double", "feasibleSpace": {"min": "0.1", "max": "1"}},
            {"name": "n", "parameterType": "int", "feasibleSpace": {"min": "1", "max": "4"}},
        ],
        "maxTrialCount": 2,
        "trialTemplate": {"trialParameters": PARAMETERS, "configMap": source},
    }
    return Owned({"metadata": {"name": "e", "namespace": "ns", "uid": "u"}, "spec": spec}, {})


def read(client: Client, owned: Owned, reader: TrialTemplates | None = None) -> dict:
    reader = reader or TrialTemplates(Here())
    return asyncio.run(reader.filled_in(client, owned)).body["spec"]["trialTemplate"]["trialSpec"]


def test_trials_come_from_a_config_map():
    run = experiment_kind(Here())
    client = Client(ns__templates=config_map())
    owned = asyncio.run(run.read_unwatched(client, experiment()))
    (first, _) = (one for one in run.step(owned, _clock()).create if one["kind"] == "Trial")
    point = {one["name"]: one["value"] for one in first["spec"]["parameterAssignments"]}
    worker = first["spec"]["runSpec"]["spec"]["pytorchReplicaSpecs"]["Worker"]
    assert worker["replicas"] == int(point["n"])
    (container,) = worker["template"]["spec"]["containers"]
    assert container["command"][2:] == [f"--lr={point['lr']}", point["n"]]


def _clock():
    from gangsched.jobs.common.clock import Clock

    return Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")


def test_a_quoted_placeholder_stays_a_text():
    job = parsed('a: "${trialParameters.n}"\nb: ${trialParameters.n}\nc: x${trialParameters.n}')
    template = {"trialSpec": job | {"kind": "Job", "apiVersion": "batch/v1"}}
    template["trialParameters"] = [{"name": "n", "reference": "n"}]
    filled = fill_template(template, {"n": "3"}, "t", "ns")
    assert (filled["a"], filled["b"], filled["c"]) == ("3", 3, "x3")
    assert fill_template(template, {"n": "0.5"}, "t", "ns")["b"] == 0.5
    for text in ("adam", "nan", "1" * 5000):
        assert fill_template(template, {"n": text}, "t", "ns")["b"] == text


def test_another_namespace_has_to_publish_it():
    owned = experiment(configMapNamespace="other")
    secret = Client(other__templates=config_map())
    absent = Client()
    messages = []
    for client in (secret, absent):
        with pytest.raises(BlockedError) as error:
            read(client, owned)
        messages.append(str(error.value))
    # A tenant does not learn which ConfigMaps others have.
    assert messages[0] == messages[1]
    assert "with the label katib.kubeflow.org/component: trial-templates" in messages[0]
    published = Client(other__templates=config_map(**dict([PUBLISHED])))
    assert read(published, owned)["kind"] == "PyTorchJob"


def test_a_text_is_read_again_only_when_it_changed(monkeypatch):
    evaluators, texts = Here(), []
    original = evaluators.template

    async def counted(owned, text):
        texts.append(text)
        return await original(owned, text)

    monkeypatch.setattr(evaluators, "template", counted)
    reader = TrialTemplates(evaluators)
    for version in ("1", "1", "2"):
        read(Client(ns__templates=config_map(version=version)), experiment(), reader)
    assert len(texts) == 2


@pytest.mark.parametrize(
    ("source", "text", "said"),
    [
        (
            {"templatePath": "x.yaml"},
            TEXT,
            "templatePath is 'x.yaml', which is no key of ConfigMap",
        ),
        ({}, "kind: [", "ConfigMap ns/templates is no YAML"),
        ({}, "- a", "is no object"),
        ({}, "a: &x [1]\nb: *x", "aliases (*name) are not allowed"),
        ({}, "a: !!python/object:os.system x", "is no YAML"),
        ({}, "a: " + "x" * 65_536, "has 65539 letters; 65536 are allowed"),
        ({}, "1: x", "has the key 1, which is no text; quote it"),
        ({}, "a: .inf", "has the number inf"),
        ({}, "a: " + "9" * 30, "it must be below 2^63"),
        ({}, "a: " + "9" * 5000, "is no YAML"),
        ({}, "a: " + "[" * 30_000, "is nested too deeply"),
        ({}, "a: placeholder-1-of-trial", "has the reserved text"),
        ({}, "a: !!binary aGk=", "is no YAML"),
        ({"configMapName": 7}, TEXT, "spec.trialTemplate.configMap"),
    ],
)
def test_what_cannot_be_read_is_said(source, text, said):
    with pytest.raises(InvalidJobError) as error:
        read(Client(ns__templates=config_map(text)), experiment(**source))
    assert said in str(error.value)
    assert str(error.value).startswith("Experiment ns/e: spec.trialTemplate")


def test_a_name_of_a_config_map_cannot_leave_its_path():
    client = Client(ns__templates=config_map())
    for source in ({"configMapName": "../secrets/key"}, {"configMapNamespace": "other/secrets/.."}):
        with pytest.raises(InvalidJobError, match="is no valid name"):
            read(client, experiment(**source))
    assert not client.read


def test_one_of_both_is_needed():
    owned = experiment()
    owned.body["spec"]["trialTemplate"]["trialSpec"] = {"kind": "Job"}
    with pytest.raises(InvalidJobError, match="has trialSpec and configMap; remove one of them"):
        read(Client(), owned)


def test_times_stay_as_they_are_written():
    assert parsed("a: 2024-01-01") == {"a": "2024-01-01"}
    with pytest.raises(TemplateError):
        parsed("a: b: c")
