"""The root folder of a pod in namespaces: the machine's own, and what is written stays in it."""

import subprocess
from pathlib import Path

import pytest

from gangsched.local.agent.isolation.root import root_script
from gangsched.local.agent.isolation.sandbox import SandboxError, choose

NAMESPACES = ("unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child")
USER = ("--user", "--map-root-user")
MOUNTED = Path("/mnt")


@pytest.fixture(params=["root", "user"])
def namespaces(request, tmp_path):
    """Return the command that runs another as the agent does where it has these rights."""
    try:
        choose(request.param, tmp_path / "agent").close()
    except SandboxError as error:
        pytest.skip(f"no pods by {request.param} here: {error}")
    return (*NAMESPACES, *(USER if request.param == "user" else ()))


def test_a_pod_sees_what_is_mounted_and_writes_into_its_own_root_alone(
    namespaces, tmp_path, monkeypatch
):
    monkeypatch.setattr(Path, "is_mount", lambda path: path == MOUNTED)
    root = tmp_path / "root"
    root.mkdir()
    lines = (
        f"mount -t tmpfs tmpfs {MOUNTED} && touch {MOUNTED}/of-the-machine",
        root_script(root, "pod", []),
        f"cd {root}/r && touch mnt/of-the-pod usr/of-the-pod etc/of-the-pod",
        f"ls mnt && ls {MOUNTED} && hostname && [ -e proc/self/exe ]",
    )
    said = subprocess.run(
        [*namespaces, "sh", "-ec", "\n".join(lines)], capture_output=True, text=True, check=False
    )
    assert not said.returncode, said.stderr
    assert said.stdout.split() == ["of-the-machine", "of-the-pod", "of-the-machine", "pod"]
    assert not [top for top in ("/mnt", "/usr", "/etc") if Path(top, "of-the-pod").exists()]
