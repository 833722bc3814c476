"""The cluster and namespace of a kubeconfig, and the error if it names none."""

import sys
from pathlib import Path

import pytest
import yaml

from gangsched.cli import main
from gangsched.cli.source import ClusterSource
from gangsched.config import ConfigError
from gangsched.kube.client.access import Access
from gangsched.kube.client.errors import KubeError


def written(folder: Path, name: str, *contexts: tuple[str, str | None]) -> Path:
    """Write a kubeconfig with contexts, each with its namespace; the first is the current one."""
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": contexts[0][0],
        "contexts": [
            {
                "name": context,
                "context": {"cluster": context, "user": "u"}
                | ({"namespace": space} if space else {}),
            }
            for context, space in contexts
        ],
        "clusters": [
            {"name": context, "cluster": {"server": f"http://{context}.test"}}
            for context, _ in contexts
        ],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = folder / name
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def file(tmp_path):
    return written(tmp_path, "config", ("here", "vision"), ("there", None))


def test_the_context_has_the_server_and_the_namespace(file):
    assert Access(file).credentials().host == "http://here.test"
    assert Access(file).namespace() == "vision"
    assert Access(file, "there").credentials().host == "http://there.test"
    assert Access(file, "there").namespace() == "default"


def test_several_files_are_read_as_kubectl_does(file, tmp_path, monkeypatch):
    other = written(tmp_path, "other", ("elsewhere", "speech"))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path / 'absent'}:{file}:{other}")
    assert Access(context="elsewhere").credentials().host == "http://elsewhere.test"
    assert Access(context="elsewhere").namespace() == "speech"


def test_a_name_may_stand_alone(file):
    source = ClusterSource(Access(file))
    assert source.full_name("job", None) == "vision/job"
    assert source.full_name("job", "speech") == "speech/job"
    assert source.full_name("speech/job", None) == "speech/job"
    assert source.full_name("speech/job", "speech") == "speech/job"
    assert (
        ClusterSource(Access(Path("/absent")), snapshot=Path("snapshot")).full_name("job", None)
        == "default/job"
    )
    with pytest.raises(ConfigError, match="'vision' is not the namespace of 'speech/job'"):
        source.full_name("speech/job", "vision")


def test_a_context_that_there_is_not_is_named(file):
    for ask in (Access(file, "nope").credentials, Access(file, "nope").namespace):
        with pytest.raises(KubeError) as error:
            ask()
        assert str(error.value) == "--context: 'nope' does not exist; there are: here, there"


WRONG = {"": "is empty", "[1": "expected ',' or ']'", "text": "is none", "a: b": "kube-config"}


@pytest.mark.parametrize("text", WRONG)
def test_a_malformed_kubeconfig_is_one_sentence(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    for ask in (Access(path).credentials, Access(path).namespace, Access(path, "c").namespace):
        with pytest.raises(KubeError) as error:
            ask()
        said = str(error.value)
        assert said.startswith(f"no usable kubeconfig: {path}")
        assert WRONG[text] in said
        assert "\n" not in said


@pytest.mark.parametrize("given", [None, "/absent/config"])
def test_a_missing_kubeconfig_is_one_sentence(tmp_path, monkeypatch, capfd, given):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    missing = "~/.kube/config"
    if given is not None:
        monkeypatch.setenv("KUBECONFIG", given)
        missing = f"KUBECONFIG names '{given}', which"
    monkeypatch.setattr(sys, "argv", ["gangsched", "queue"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err == (
        f"error: no usable kubeconfig: {missing} does not exist; give --kubeconfig or KUBECONFIG\n"
    )
