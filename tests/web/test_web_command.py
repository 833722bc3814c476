"""The command `gangsched web` says in one sentence what is wrong with its arguments."""

import socket
import sys

import pytest
from builders import POLICIES, an_engine, node
from web_sources import page_source

from gangsched.cli import main
from gangsched.cli.web import page_queues, show_pages
from gangsched.config import ConfigError
from gangsched.core.facts import QueueSeen
from gangsched.core.model.queues import Queue, Quota
from gangsched.kube.client.access import Access
from gangsched.recording.journal import RestoredEngine, write_facts


def test_a_file_that_is_no_snapshot_is_rejected(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        show_pages(tmp_path / "none", Access(), None, 0)
    (tmp_path / "x").write_text("hello\n")
    with pytest.raises(ConfigError, match="line 1"):
        show_pages(tmp_path / "x", Access(), None, 0)


def test_a_port_in_use_is_named(tmp_path):
    write_facts(tmp_path / "now", RestoredEngine(page_source().engine, 1.0, []))
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(ConfigError, match=r"--port: .*in use"):
            show_pages(tmp_path / "now", Access(), None, other.getsockname()[1])


def test_a_missing_package_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    for name in [name for name in sys.modules if name.startswith("gangsched.web")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "gangsched.cli.web")
    monkeypatch.setattr(sys, "argv", ["gangsched", "web", "file"])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 2
    assert "pip install 'gangsched[web]'" in capsys.readouterr().err


def test_queues_have_the_parts_of_their_quota():
    engine = an_engine(node("a"))
    gpu = "nvidia.com/gpu"
    engine.observe(QueueSeen(Queue("q", quotas=(Quota(gpu, 4000),), namespaces=frozenset({"n"}),
                                   open_to_all=False)), 0.0)  # fmt: skip
    engine.observe(QueueSeen(Queue("broken", broken="it is malformed")), 0.0)
    rows = {row.name: row for row in page_queues(engine, POLICIES)}
    (quota,) = rows["q"].quotas
    assert (quota.resource, quota.nominal, quota.used) == (gpu, "4", "0")
    assert (quota.own_part, quota.borrowed_part) == (0.0, 0.0)
    assert rows["q"].namespaces == {"n"}
    assert rows["default"].namespaces is None
    assert rows["broken"].problem
