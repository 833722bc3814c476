"""Names of local control planes are safe names of folders."""

import pytest
import typer.testing

from gangsched.cli.local import local
from gangsched.local import plane as planes
from gangsched.local.plane import Plane, PlaneError, PlaneOptions

WRONG = ["", "../../other", "/abs", ".", "..", "a/b", "Bad Name!", "a_b", "x\n", "a" * 41]


@pytest.fixture
def state(tmp_path, monkeypatch):
    """The state folder of all planes, in a folder of its own."""
    monkeypatch.setattr(planes.platformdirs, "user_state_dir", lambda _: str(tmp_path / "state"))
    (tmp_path / "state" / "local").mkdir(parents=True)
    return tmp_path / "state"


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize(
    "words", [["up"], ["down"], ["status"], ["kubeconfig"], ["logs", "agent"], ["kubectl"]]
)
def test_a_name_that_is_no_plain_name_is_refused_by_every_command(state, name, words):
    (state / "local" / "kept").mkdir()
    done = typer.testing.CliRunner().invoke(local, [*words, "--name", name])
    assert isinstance(done.exception, PlaneError), done.output
    assert repr(name) in str(done.exception)
    assert "lower-case letters" in str(done.exception)
    assert (state / "local" / "kept").is_dir()


@pytest.mark.parametrize("name", ["default", "ux-1", "a" * 40, "0"])
def test_plain_names_are_taken(state, name):
    assert Plane(name).folder == state / "local" / name


def test_only_a_folder_of_a_plane_is_removed(state):
    other = state / "local" / "other"
    other.mkdir()
    (other / "thesis.txt").write_text("mine")
    with pytest.raises(PlaneError, match=r"other.*is not the folder of a local control plane"):
        Plane("other").down()
    assert (other / "thesis.txt").read_text() == "mine"


def test_a_link_in_place_of_the_folder_is_not_followed(state, tmp_path):
    real = tmp_path / "real"
    real.mkdir()
    (real / "instance.json").write_text("{}")
    (state / "local" / "linked").symlink_to(real)
    with pytest.raises(PlaneError, match="is not the folder of a local control plane"):
        Plane("linked").down()
    assert (real / "instance.json").exists()


@pytest.mark.parametrize("mark", ["instance.json", "programs.json"])
def test_down_removes_the_rest_of_a_failed_start(state, mark):
    folder = state / "local" / "default"
    (folder / "pki").mkdir(parents=True)
    (folder / mark).write_text("[]")
    assert Plane().down() == 0
    assert not folder.exists()


def test_a_start_marks_its_folder_before_it_writes_anything_else(state, monkeypatch):
    seen = []

    def start(plane, *_):
        seen.extend(path.name for path in plane.folder.iterdir())
        raise TimeoutError("cut off")

    monkeypatch.setattr(planes.components, "ensure", lambda _: state)
    monkeypatch.setattr(Plane, "_start", start)
    with pytest.raises(PlaneError, match="cut off"):
        Plane().up(None, PlaneOptions(), lambda _: None)
    assert seen == ["programs.json"]
    assert not (state / "local" / "default").exists()


def test_folders_with_other_names_are_not_listed(state):
    for name in ("default", "Bad Name!"):
        (state / "local" / name / "logs").mkdir(parents=True)
    assert [plane.name for plane in planes.instances()] == ["default"]
