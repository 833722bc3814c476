"""Experiments of pbt and hyperband: labels, settings, checkpoints that go from trial to trial."""

import asyncio
import copy
import subprocess

import pytest
from evaluated import Here
from test_experiment import CLOCK, search

from gangsched.jobs.common.owned_objects import Owned
from gangsched.jobs.katib import experiment
from gangsched.jobs.katib.checkpoints import _COPY, CHECKPOINT_CLAIM_ANNOTATION
from gangsched.operators.job_kind import InvalidJobError
from gangsched.operators.kinds.experiment import experiment_kind

FOLDER = "/var/log/katib/checkpoints/"
SETTINGS = {"suggestion_trial_dir": FOLDER, "n_population": "5", "truncation_threshold": "0.2"}
BAND = {"r_l": "9", "resource_name": "lr"}


def algorithm(name: str, settings: dict[str, str]) -> dict:
    listed = [{"name": key, "value": value} for key, value in settings.items()]
    return {"algorithmName": name, "algorithmSettings": listed}


def pod(name="main", **more) -> dict:
    return {"spec": {"containers": [{"name": "proxy"}, {"name": name, "image": "x", **more}]}}


def template(spec: dict, kind="Job", version="batch/v1") -> dict:
    return {
        "primaryContainerName": "main",
        "trialParameters": [{"name": "rate", "reference": "lr"}],
        "trialSpec": {
            "apiVersion": version,
            "kind": kind,
            "metadata": {"annotations": {"rate": "${trialParameters.rate}"}},
            "spec": spec,
        },
    }


JOB = template({"template": pod()})


def point(_, tried, count, uid):
    """Suggest a member of a second generation."""
    return [experiment.SuggestedPoint({"lr": "0.2"}, 1, "e-parent")]


def created(owned: Owned) -> dict[str, dict]:
    return {one["kind"]: one for one in experiment.reconcile(owned, point, CLOCK).create}


def test_a_trial_continues_the_checkpoint_of_its_parent():
    owned = search(algorithm=algorithm("pbt", SETTINGS), trialTemplate=JOB)
    made = created(owned)
    claim = made["PersistentVolumeClaim"]
    assert claim["metadata"]["name"] == "e-pbt"
    trial = made["Trial"]
    labels = trial["metadata"]["labels"]
    assert labels[experiment.GENERATION_LABEL] == "1"
    assert labels[experiment.PARENT_LABEL] == "e-parent"
    spec = trial["spec"]["runSpec"]["spec"]["template"]["spec"]
    proxy, main = spec["containers"]
    assert proxy == {"name": "proxy"}
    (mount,) = main["volumeMounts"]
    name = trial["metadata"]["name"]
    assert (mount["mountPath"], mount["subPath"]) == (FOLDER, f"e/{name}")
    (volume,) = spec["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "e-pbt"}
    (first,) = spec["initContainers"]
    assert first["command"][-2:] == [name, "e-parent"]
    assert JOB["trialSpec"]["spec"]["template"] == pod()  # the template is not changed
    known = Owned(owned.body, {("PersistentVolumeClaim", "e-pbt"): claim})
    assert "PersistentVolumeClaim" not in created(known)


def test_a_claim_of_the_user_is_used():
    owned = search(algorithm=algorithm("pbt", SETTINGS), trialTemplate=JOB)
    owned.body["metadata"]["annotations"] = {CHECKPOINT_CLAIM_ANNOTATION: "fast"}
    made = created(owned)
    (trial,) = made.values()
    (volume,) = trial["spec"]["runSpec"]["spec"]["template"]["spec"]["volumes"]
    assert volume["persistentVolumeClaim"] == {"claimName": "fast"}


@pytest.mark.parametrize(
    ("spec", "kind", "version"),
    [
        (
            {"pytorchReplicaSpecs": {"Worker": {"template": pod()}}},
            "PyTorchJob",
            "kubeflow.org/v1",
        ),
        (
            {"replicatedJobs": [{"template": {"spec": {"template": pod()}}}]},
            "JobSet",
            "jobset.x-k8s.io/v1alpha2",
        ),
    ],
)
def test_pods_of_every_kind_get_the_folder(spec, kind, version):
    owned = search(
        algorithm=algorithm("pbt", SETTINGS), trialTemplate=template(spec, kind, version)
    )
    run = created(owned)["Trial"]["spec"]["runSpec"]
    assert str(run).count("claimName") == 1


def test_hyperband_keeps_checkpoints_only_if_asked():
    plain = search(algorithm=algorithm("hyperband", BAND), trialTemplate=JOB)
    made = created(plain)
    assert list(made) == ["Trial"]
    assert "volumes" not in made["Trial"]["spec"]["runSpec"]["spec"]["template"]["spec"]
    kept = algorithm("hyperband", BAND | {"suggestion_trial_dir": FOLDER})
    assert "PersistentVolumeClaim" in created(search(algorithm=kept, trialTemplate=JOB))


def test_a_template_may_name_the_parent():
    named = copy.deepcopy(JOB)
    label = f"${{trialSpec.Labels[{experiment.PARENT_LABEL}]}}"
    named["trialSpec"]["metadata"]["annotations"]["parent"] = label
    trial = created(search(algorithm=algorithm("pbt", SETTINGS), trialTemplate=named))["Trial"]
    assert trial["spec"]["runSpec"]["metadata"]["annotations"]["parent"] == "e-parent"


def test_a_copy_is_made_once_and_never_over_what_was_saved(tmp_path):
    (tmp_path / "parent").mkdir()
    (tmp_path / "parent" / "weights").write_text("old")
    (tmp_path / "parent" / ".state").mkdir()
    (tmp_path / "parent" / ".state" / "step").write_text("3")

    def copied() -> str:
        command = ["sh", "-c", _COPY, "copy", str(tmp_path), "child", "parent"]
        subprocess.run(command, check=True, env={"HOSTNAME": "pod", "PATH": "/usr/bin:/bin"})
        return (tmp_path / "child" / "weights").read_text()

    (tmp_path / "child").mkdir()  # some nodes make the folders of all mounts first
    assert copied() == "old"
    assert (tmp_path / "child" / ".state" / "step").read_text() == "3"
    (tmp_path / "child" / "weights").write_text("new")
    assert copied() == "new"  # the pod is retried
    (tmp_path / "child.copied").unlink()
    assert copied() == "new"  # another pod of the trial is later
    assert (tmp_path / "parent" / "weights").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["child", "child.copied", "parent"]


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("pbt", {}, "pbt needs the setting suggestion_trial_dir"),
        ("pbt", SETTINGS | {"n_population": "4"}, "a whole number from 5 to 1000"),
        ("pbt", SETTINGS | {"truncation_threshold": "1.1"}, "must be a number from 0 to 1"),
        ("pbt", SETTINGS | {"truncation_threshold": "nan"}, "must be a number from 0 to 1"),
        ("pbt", SETTINGS | {"suggestion_trial_dir": "data"}, "must be an absolute path"),
        ("pbt", SETTINGS | {"suggestion_trial_dir": "/a/../etc"}, "must be an absolute path"),
        ("pbt", SETTINGS | {"suggestion_trial_dir": "/" + "a" * 2000}, "must be an absolute path"),
        ("hyperband", {"r_l": "9"}, "hyperband needs the setting resource_name"),
        ("hyperband", BAND | {"eta": "1"}, "must be a whole number from 2 to 1000"),
        ("hyperband", BAND | {"r_l": "0.5"}, "must be a number from 1 to 1e+09"),
        ("hyperband", BAND | {"r_l": "1" * 100}, "must be a number from 1 to 1e+09"),
        ("hyperband", BAND | {"resource_name": "epochs"}, "is 'epochs'; it must be one of: lr"),
        ("hyperband", BAND | {"resource_name": ""}, "must be the name of a parameter"),
        ("cmaes", {"sigma": "0"}, "must be a number from 0.001 to 1"),
        ("cmaes", {"restart_strategy": "bipop"}, "must be one of: none, ipop"),
    ],
)
def test_a_wrong_setting_is_named(name, settings, said):
    owned = search(algorithm=algorithm(name, settings), trialTemplate=JOB)
    with pytest.raises(InvalidJobError) as error:
        asyncio.run(experiment_kind(Here()).read_unwatched(None, owned))
    assert str(error.value).startswith("Experiment ns/e: spec.algorithm.algorithmSettings")
    assert said in str(error.value)


def test_a_trainjob_cannot_get_a_folder():
    trainjob = template({"runtimeRef": {"name": "r"}}, "TrainJob", "trainer.kubeflow.org/v1alpha1")
    owned = search(algorithm=algorithm("pbt", SETTINGS), trialTemplate=trainjob)
    with pytest.raises(InvalidJobError, match="has no container main"):
        asyncio.run(experiment_kind(Here()).read_unwatched(None, owned))
