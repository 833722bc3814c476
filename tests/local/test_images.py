"""Images on process nodes: the image of a pod, its command, and its paths."""

import json
from pathlib import Path

import pytest

from gangsched.local import loading
from gangsched.local.agent import images
from gangsched.local.agent.images import Image
from gangsched.local.agent.isolation.root import Mount, root_script, within
from gangsched.local.agent.spec import PodError, command_line
from gangsched.local.loading import load
from gangsched.local.plane import PlaneError

NAME = "registry.example:5000/team/app:1"


def lay(folder, name=NAME, **config):
    """Lay down an image as `load` does."""
    place = images.place(folder, name)
    (place / "root").mkdir(parents=True)
    (place / "config.json").write_text(json.dumps(config))
    return place / "root"


def spec(*names, pod=None, **context):
    """Return a pod's spec with a container of each image."""
    containers = [{"name": "c", "image": name, "securityContext": context} for name in names]
    return {"containers": containers, "securityContext": pod or {}}


def test_a_pod_runs_on_the_image_that_all_its_containers_name(tmp_path):
    root = lay(tmp_path)
    assert images.image_of_pod(tmp_path, spec(NAME, NAME)).root == root
    assert images.image_of_pod(tmp_path, spec(NAME, "another")) is None
    assert images.image_of_pod(tmp_path, spec("another")) is None


def test_an_image_without_a_tag_is_latest(tmp_path):
    lay(tmp_path, "localhost:5000/app:latest")
    assert images.image_of_pod(tmp_path, spec("localhost:5000/app"))


@pytest.mark.parametrize("name", ["..", ".", "../../etc", "", "a" * 5000])
def test_no_name_leads_out_of_the_folder_of_images(tmp_path, name):
    assert images.place(tmp_path, name).parent == tmp_path
    assert images.image_of_pod(tmp_path, spec(name)) is None


@pytest.mark.parametrize(
    ("user", "pod", "container", "runs_as"),
    [
        ("", {}, {}, (0, 0)),
        ("65532:65533", {}, {}, (65532, 65533)),
        ("65532", {}, {}, (65532, 0)),
        ("nginx", {}, {}, (0, 0)),
        ("1:1", {"runAsUser": 2, "runAsGroup": 3}, {}, (2, 3)),
        ("1:1", {"runAsUser": 2}, {"runAsUser": 4}, (4, 1)),
    ],
)
def test_a_container_runs_as_the_user_of_the_pod_or_the_image(
    tmp_path, user, pod, container, runs_as
):
    lay(tmp_path, User=user)
    found = images.image_of_pod(tmp_path, spec(NAME, pod=pod, **container))
    assert (found.user, found.group) == runs_as


@pytest.mark.parametrize(
    ("container", "runs"),
    [
        ({}, ["app", "serve"]),
        ({"args": ["help"]}, ["app", "help"]),
        ({"command": ["sh"], "args": ["-c"]}, ["sh", "-c"]),
        ({"command": ["sh"]}, ["sh"]),
    ],
)
def test_a_pods_command_replaces_that_of_the_image(tmp_path, container, runs):
    lay(tmp_path, Entrypoint=["app"], Cmd=["serve"])
    image = images.image_of_pod(tmp_path, spec(NAME))
    assert command_line({"name": "c", "image": NAME} | container, {}, image) == runs


def test_an_image_that_runs_nothing_is_refused():
    with pytest.raises(PodError, match="'c' has no command"):
        command_line({"name": "c", "image": NAME}, {}, Image(root=None))


@pytest.mark.parametrize(
    ("target", "leads_to"),
    [
        ("/var/run/secrets", "/run/secrets"),
        ("/var/up/x", "/x"),
        ("/escape/x", "/x"),
        ("/plain/new", "/plain/new"),
        ("/plain/../../run", "/run"),
    ],
)
def test_links_of_an_image_are_followed_inside_of_it(tmp_path, target, leads_to):
    """A process that mounts sees the machine's root, where an absolute link leads elsewhere."""
    for folder in ("var", "run", "plain"):
        (tmp_path / folder).mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    (tmp_path / "var/up").symlink_to("..")
    (tmp_path / "escape").symlink_to("../../../..")
    assert within(tmp_path, target) == leads_to


def test_a_circle_of_links_is_left_to_the_kernel(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert within(tmp_path, "/a/x") in ("/a/x", "/b/x")


def test_mounts_of_an_image_stay_below_its_root(tmp_path):
    root = lay(tmp_path, Entrypoint=["app"])
    (root / "var").mkdir()
    (root / "var/run").symlink_to("/run")
    image = images.image_of_pod(tmp_path, spec(NAME, readOnlyRootFilesystem=True))
    script = root_script(tmp_path / "pod", "p", [Mount(tmp_path, "/var/run/x")], image)
    lines = script.splitlines()
    assert f"mount --bind {tmp_path} {tmp_path}/pod/r/run/x" in lines
    assert lines[-1] == f"mount -o remount,bind,ro {tmp_path}/pod/r"
    assert not [line for line in lines if "lowerdir=/," in line], "the machine's own"


class Stopped:
    """A control plane that does not run, or does."""

    name = "mine"

    def __init__(self, folder, *, runs=True) -> None:
        self.folder = folder
        self._runs = runs

    def running(self) -> bool:
        return self._runs


def layout(folder, tag="1"):
    """Write a layout with an image that has no layers."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)
    (blobs / "m").write_text(json.dumps({"config": {"digest": "sha256:c"}}))
    (blobs / "c").write_text(json.dumps({"config": {"Cmd": ["app"]}}))
    tagged = {"org.opencontainers.image.ref.name": tag}
    index = {"manifests": [{"digest": "sha256:m", "annotations": tagged}]}
    (folder / "index.json").write_text(json.dumps(index))
    return folder


@pytest.mark.parametrize(
    ("name", "runs", "said"),
    [
        ("app:2", True, r"has no image tagged '2'; its tags: 1"),
        ("app", True, r"app: give NAME:TAG, with a tag of the layout"),
        ("app:1", False, r"local control plane 'mine' does not run"),
    ],
)
def test_an_image_that_cannot_be_loaded_is_an_error(tmp_path, name, runs, said):
    with pytest.raises(PlaneError, match=said):
        load(Stopped(tmp_path, runs=runs), layout(tmp_path / "oci"), name, lambda _: None)


@pytest.mark.parametrize("index", ["", "[]", "{}", '{"manifests": [{}]}', '{"manifests": 1}'])
def test_a_malformed_image_layout_is_an_error(tmp_path, index):
    (tmp_path / "index.json").write_text(index)
    with pytest.raises(PlaneError, match=r"layout|no image tagged"):
        load(Stopped(tmp_path), tmp_path, "app:1", lambda _: None)


def test_an_image_is_complete_or_absent(tmp_path, monkeypatch):
    """The second load of a name takes the place of the first, once it is unpacked."""
    made = []

    def unpack(command, _) -> None:
        if made:
            raise loading.gobuild.BuildError("no room")
        Path(command[-1]).mkdir()
        made.append(command)

    monkeypatch.setattr(loading.components, "ensure", lambda *_: tmp_path)
    monkeypatch.setattr(loading.gobuild, "run", unpack)
    plane, source = Stopped(tmp_path), layout(tmp_path / "oci")
    root = load(plane, source, "app:1", lambda _: None)
    with pytest.raises(PlaneError, match="no room"):
        load(plane, source, "app:1", lambda _: None)
    assert root.is_dir()
    assert images.loaded(root.parent).arguments == ("app",)
    assert list(root.parents[1].iterdir()) == [root.parent]


@pytest.mark.parametrize("end", ["", ":latest", ":v2.3.0", "@sha256:abc"])
@pytest.mark.parametrize("part", ["dataset", "model"])
def test_kubeflows_initializers_are_the_program_of_the_same_contract(part, end):
    container = {"name": "c", "image": f"ghcr.io/kubeflow/trainer/{part}-initializer{end}"}
    assert command_line(container, {})[1:] == ["-m", "gangsched.initializers", part]
    container["command"] = ["mine"]
    assert command_line(container, {}) == ["mine"]


def test_an_image_with_a_like_name_has_no_program():
    container = {"name": "c", "image": "evil.io/kubeflow/trainer/dataset-initializer"}
    with pytest.raises(PodError, match="has no command"):
        command_line(container, {})
