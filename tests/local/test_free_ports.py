"""Ports for programs that listen later: no other program takes one in between."""

import multiprocessing
import os
import socket
import tempfile
from pathlib import Path

import pytest

from gangsched.local import network


@pytest.fixture(autouse=True)
def _own_state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_processes_that_ask_at_once_get_different_ports() -> None:
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        given = [port for ports in pool.map(network.free_ports, [40] * 6) for port in ports]
    assert len(set(given)) == 240


@pytest.mark.parametrize(
    ("told", "end"),
    [("20000\t60999\n", 20_000), ("1024\t65535\n", 32_768), ("", 32_768), (None, 32_768)],
)
def test_no_port_is_one_that_the_kernel_gives_to_connections(
    told: str | None, end: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    setting = tmp_path / "ip_local_port_range"
    if told is not None:
        setting.write_text(told)
    monkeypatch.setattr(network, "_EPHEMERAL", setting)
    assert set(network.free_ports(300)) <= set(range(15_000, end))


def test_a_reserved_port_is_free_again_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "_is_free", lambda _: True)  # whoever listens there by now
    ports = set(network.free_ports(3))
    monkeypatch.setattr(network, "_LOWEST", min(ports))
    monkeypatch.setattr(network, "_first_ephemeral", lambda: min(ports) + 1)
    with pytest.raises(OSError, match=r"found 0 free ports of 127\.0\.0\.1 from \d+ on, needed 1"):
        network.free_ports(1)
    monkeypatch.setattr(network, "_KEPT_S", 0.0)
    assert network.free_ports(1) == [min(ports)]


def test_a_port_with_a_listener_is_not_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        monkeypatch.setattr(network, "_LOWEST", port)
        monkeypatch.setattr(network, "_first_ephemeral", lambda: port + 1)
        with pytest.raises(OSError, match="found 0"):
            network.free_ports(1)


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"15000": "soon"}'])
def test_a_truncated_record_of_ports_counts_as_empty(text: str, tmp_path: Path) -> None:
    record = tmp_path / f"gangsched-{os.getuid()}" / "ports.json"
    record.parent.mkdir()
    record.write_text(text)
    assert len(network.free_ports(2)) == 2


def test_another_state_folder_does_not_give_the_same_ports(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(network, "_first_ephemeral", lambda: network._LOWEST + 20)
    monkeypatch.setattr(network, "_is_free", lambda _: True)
    first = network.free_ports(10)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    assert not set(first) & set(network.free_ports(10))


@pytest.mark.parametrize("made", ["a file", "a link"])
def test_a_folder_of_another_user_is_not_used(made: str, tmp_path: Path) -> None:
    ours = tmp_path / f"gangsched-{os.getuid()}"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if made == "a file":
        ours.write_text("")
    else:
        ours.symlink_to(elsewhere)
    network.free_ports(1)
    assert not list(elsewhere.iterdir())
    assert (tmp_path / "state" / "gangsched" / "ports.json").exists()
