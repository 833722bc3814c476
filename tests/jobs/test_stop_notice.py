"""gangsched.torch in one process: it saves once, waits, and goes on or ends."""

import signal
from datetime import UTC, datetime, timedelta

import pytest

pytestmark = pytest.mark.torch


@pytest.fixture
def torch_notice(tmp_path):
    module = pytest.importorskip("gangsched.torch")
    before = signal.getsignal(signal.SIGTERM)
    yield module.StopNotice(tmp_path)
    signal.signal(signal.SIGTERM, before)


def announce(folder, seconds: float) -> None:
    at = datetime.now(UTC) + timedelta(seconds=seconds)
    (folder / "stop-at").write_text(at.isoformat())


def test_nothing_is_saved_without_a_notice(torch_notice, tmp_path):
    saves = []
    assert not torch_notice.after_step(lambda: saves.append(1))
    (tmp_path / "stop-at").write_text("")
    assert not torch_notice.after_step(lambda: saves.append(1))
    announce(tmp_path, -5.0)
    assert not torch_notice.after_step(lambda: saves.append(1)), "it is out of date"
    assert not saves


def test_it_saves_once_and_goes_on_if_nothing_stops_it(torch_notice, tmp_path, capsys):
    saves = []
    announce(tmp_path, -0.8)
    assert not torch_notice.after_step(lambda: saves.append(1))
    assert not torch_notice.after_step(lambda: saves.append(1))
    assert saves == [1]
    assert "the checkpoint is not reported" in capsys.readouterr().out


def test_sigterm_ends_the_wait(torch_notice, tmp_path):
    announce(tmp_path, 3600.0)
    torch_notice._answer = lambda: signal.raise_signal(signal.SIGTERM)
    assert torch_notice.after_step(lambda: None)


def test_a_withdrawn_stop_ends_the_wait(torch_notice, tmp_path):
    announce(tmp_path, 3600.0)
    torch_notice._answer = lambda: (tmp_path / "stop-at").write_text("")
    assert not torch_notice.after_step(lambda: None)
    announce(tmp_path, 7200.0)
    assert torch_notice.is_announced(), "a later stop is another one"


def test_without_a_notice_sigterm_saves_too(torch_notice):
    saves = []
    signal.raise_signal(signal.SIGTERM)
    assert torch_notice.after_step(lambda: saves.append(1))
    assert saves == [1]
