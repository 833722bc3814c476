"""The programs of the control plane: one file with six names, and its build."""

import subprocess

import pytest
from waiting import patience_s

from gangsched.local import components, gobuild
from gangsched.local.components import KUBERNETES, KWOK

VERSIONS = {
    "etcd": (["--version"], "etcd Version: 3."),
    "kube-apiserver": (["--version"], f"Kubernetes {KUBERNETES}"),
    "kube-controller-manager": (["--version"], f"Kubernetes {KUBERNETES}"),
    "kube-scheduler": (["--version"], f"Kubernetes {KUBERNETES}"),
    "kubectl": (["version", "--client"], f"Client Version: {KUBERNETES}"),
    "kwok": (["--version"], KWOK),
}


def said(*command) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=patience_s(20)
    )


@pytest.mark.parametrize("name", VERSIONS)
def test_each_name_is_the_program_of_that_name(name):
    arguments, version = VERSIONS[name]
    done = said(components.program(name), *arguments)
    assert done.returncode == 0, done.stderr
    assert version in done.stdout


def test_there_is_one_file_behind_all_names():
    files = {components.program(name).resolve() for name in VERSIONS}
    assert len(files) == 1
    done = said(files.pop())
    assert done.returncode == 2
    assert 'holds no program "controlplane"' in done.stderr


@pytest.fixture
def module(tmp_path):
    """A module of two packages that needs nothing but Go."""
    folder = tmp_path / "module"
    (folder / "words").mkdir(parents=True)
    (folder / "go.mod").write_text("module example.com/hello\n\ngo 1.26.0\n")
    (folder / "words" / "words.go").write_text(
        f"package words\n\n// {tmp_path}\nfunc Hello() string {{ return Word }}\nvar Word string\n"
    )
    (folder / "main.go").write_text(
        'package main\n\nimport "example.com/hello/words"\n\nfunc main() { print(words.Hello()) }\n'
    )
    return folder


def build(module, target) -> list[str]:
    """Build the module, and return what was told meanwhile."""
    told: list[str] = []
    go = components.go_toolchain(told.append)
    gcflags = components.CONTROL_PLANE[0].source.gcflags  # Go's own packages are compiled with them
    word = "-X example.com/hello/words.Word=hello"
    source = gobuild.GoPackage(module, ".", word, gcflags=gcflags)
    gobuild.build(go, source, target, told.append)
    return told


def test_a_build_tells_how_far_it_is(module, tmp_path):
    target = tmp_path / "hello"
    told = build(module, target)
    assert any("of 2 packages" in line for line in told), told
    assert told[-1].startswith("built hello in ")
    assert said(target).stderr == "hello"


def test_what_is_compiled_is_not_compiled_again(module, tmp_path):
    assert any("of 2 packages" in line for line in build(module, tmp_path / "first"))
    told = build(module, tmp_path / "second")
    assert not any("of 2 packages" in line for line in told), told


def test_a_build_that_fails_leaves_nothing_and_says_what_go_said(module, tmp_path):
    (module / "main.go").write_text("package main\n\nfunc main() { nothing() }\n")
    with pytest.raises(gobuild.BuildError, match="undefined: nothing"):
        build(module, tmp_path / "hello")
    assert [path.name for path in tmp_path.iterdir()] == ["module"]


def test_the_estimate_follows_the_size_of_what_is_compiled(monkeypatch):
    now_s = 0.0
    monkeypatch.setattr(gobuild.time, "monotonic", lambda: now_s)
    told: list[str] = []
    tracker = gobuild.Tracker("x", {"small": 100, "large": 800, "last": 100}, told.append)
    now_s = 30.0
    tracker.compiles("small")
    assert told[-1] == "building x: 1 of 3 packages, about 5 min left"
    now_s = 60.0
    tracker.compiles("large")
    assert told[-1] == "building x: 2 of 3 packages, about 20 s left"
