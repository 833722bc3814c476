"""Which local control plane a command uses, which of its programs ended, and how they restart."""

import pytest
import typer.testing
from recorded_planes import record

from gangsched.cli.local import local
from gangsched.local import plane as planes
from gangsched.local.plane import Plane, PlaneError, chosen, serving
from gangsched.local.restart import restart


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    """Return the state folder of all planes, in a folder of its own."""
    monkeypatch.setattr(planes.platformdirs, "user_state_dir", lambda _: str(tmp_path))
    return tmp_path


def invoke(*words: str):
    """Run `gangsched local`."""
    return typer.testing.CliRunner().invoke(local, words, env={"COLUMNS": "80"})


def test_without_a_name_the_only_plane_is_meant():
    record("mine", etcd=True)
    assert chosen(None).name == "mine"
    assert invoke("kubeconfig").stdout == f"{Plane('mine').kubeconfig}\n"


def test_without_a_name_the_default_one_of_several_is_meant():
    for name in ("mine", "default", "yours"):
        record(name, etcd=True)
    assert chosen(None).name == "default"


@pytest.mark.parametrize(
    "words", [["kubectl", "--", "get", "nodes"], ["logs", "etcd"], ["restart"]]
)
def test_where_several_could_be_meant_they_are_named(words):
    for name in ("mine", "yours"):
        record(name, etcd=True)
    error = invoke(*words).exception
    assert isinstance(error, PlaneError)
    assert str(error) == (
        "no local control plane 'default' (there are: mine, yours; choose one with --name); "
        "start it with: gangsched local up --name default"
    )


def test_what_is_stopped_is_never_guessed():
    record("mine", etcd=True)
    done = invoke("down")
    assert done.stdout == "'default' was not running (there are: mine; choose one with --name)\n"
    assert Plane("mine").folder.exists()


def test_many_planes_are_not_all_named():
    for number in range(12):
        record(f"p{number:02}", etcd=True)
    with pytest.raises(PlaneError, match=r"there are: p00, .*, p07 and 4 more;"):
        chosen(None)


def test_a_plane_is_found_by_its_address_while_any_program_of_it_runs():
    record("gone", "https://127.0.0.1:7", etcd=False)
    record("mine", "https://127.0.0.1:7", etcd=True)
    found = serving("https://127.0.0.1:7")
    assert found is not None
    assert found.name == "mine"
    assert serving("https://127.0.0.1:8") is None


def test_a_start_where_a_program_ended_says_what_to_do(monkeypatch):
    plane = record("mine", etcd=True, gangsched=False, kwok=False)
    with pytest.raises(PlaneError) as error:
        plane.up(None, None, lambda _: None)
    assert str(error.value) == (
        "local control plane 'mine' already runs, but gangsched, kwok ended; "
        "start again what ended with: gangsched local restart --name mine"
    )
    assert plane.folder.exists()


def test_a_plane_without_its_api_server_is_not_deleted_by_a_start():
    plane = record("mine", etcd=True, kube_apiserver=False)
    with pytest.raises(PlaneError, match="but kube-apiserver ended"):
        plane.up(None, None, lambda _: None)
    assert plane.folder.exists()


def test_the_status_says_what_ended_and_how_it_runs_again():
    record("mine", etcd=True, gangsched=False)
    done = invoke("status")
    assert done.exit_code == 1
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[1::2] for line in lines[1:3]] == [["etcd", "runs"], ["gangsched", "ended"]]
    assert "gangsched local restart --name mine" in done.stdout


def test_the_status_of_a_plane_that_is_not_there_is_a_mistake():
    assert "no local control plane 'mine'" in str(invoke("status", "--name", "mine").exception)


def test_what_ended_runs_again_in_its_place_and_the_rest_goes_on():
    plane = record("mine", etcd=True, gangsched=False, kwok=False, other=True)
    plane.programs.logs.joinpath("kwok.log").write_text("earlier\n")
    (plane.folder / "instance.json").write_text("{}")
    before = {one.name: one.pid for one in plane.programs.all()}
    try:
        again = restart(plane, "kwok")
        assert [one.name for one in again] == ["kwok"]
        assert plane.programs.ended() == ["gangsched"]
        assert [one.name for one in plane.programs.all()] == list(before)
        assert plane.programs.get("etcd").pid == before["etcd"]
        assert plane.programs.tail("kwok") == "earlier"
    finally:
        plane.programs.stop("kwok", hard=True)


def test_with_no_program_named_all_that_ended_run_again():
    plane = record("mine", etcd=True, kwok=False, kube_scheduler=False)
    try:
        done = invoke("restart")
        assert done.exit_code == 0, done.exception
        assert plane.programs.ended() == []
        assert [line.split()[0] for line in done.stdout.splitlines()] == ["kwok", "kube-scheduler"]
        assert "all programs of local control plane 'mine' run" in invoke("restart").stdout
    finally:
        for name in ("kwok", "kube-scheduler"):
            plane.programs.stop(name, hard=True)


def test_a_program_that_ends_at_once_is_reported_with_its_last_output(monkeypatch):
    plane = record("mine", etcd=True, agent=False)
    (plane.folder / "agent.ready").touch()
    record_of = plane.folder / "programs.json"
    record_of.write_text(record_of.read_text().replace('"sleep", "1000"', '"sh", "-c", "echo no"'))
    with pytest.raises(PlaneError, match=r"agent ended while waiting for agent to be ready:\nno"):
        restart(plane, "agent")


def test_an_unknown_program_is_an_error_that_lists_the_known():
    record("mine", etcd=True)
    assert "there are: etcd" in str(invoke("restart", "kwok").exception)
