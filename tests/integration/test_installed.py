"""The wheel works alone, in its own environment without a checkout.

The image of test_image.py holds the wheel too: a simulation runs there.
"""

import os
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest
from waiting import patience_s

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"
LEFT_OUT = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "VIRTUAL_ENV")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Install the wheel; return what runs `gangsched` there.

    The packages it needs are those of the tests, which come from the same locks and have their
    bytecode. Their folder follows that of the wheel in the path; the link in it to the gangsched
    of the checkout is read by their own environment alone.
    """
    folder = tmp_path_factory.mktemp("installed")
    environment = {key: value for key, value in os.environ.items() if key not in LEFT_OUT}
    environment["XDG_STATE_HOME"] = str(folder / "state")

    def run(*command: object, **more: str) -> str:
        done = subprocess.run(
            [str(word) for word in command],
            cwd=folder,
            env=environment | more,
            text=True,
            capture_output=True,
            timeout=patience_s(120),
            check=False,
        )
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
        return done.stdout

    run(UV, "build", "--quiet", "--wheel", "--out-dir", folder, ROOT)
    (wheel,) = folder.glob("*.whl")
    run(UV, "venv", "--quiet", "--python", sys.executable, "env")
    into = (UV, "pip", "install", "--quiet", "--python", folder / "env/bin/python", "--no-deps")
    run(*into, wheel)
    (packages,) = (folder / "env").glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    where = run("env/bin/python", "-c", "import gangsched; print(gangsched.__file__)").strip()
    assert Path(where).is_relative_to(folder), "this is the checkout's gangsched"

    def gangsched(*command: object, **more: str) -> str:
        return run("env/bin/gangsched", *command, **more)

    yield gangsched
    run("env/bin/gangsched", "local", "down", "--name", "installed")


@pytest.mark.long
def test_the_demo_runs_from_a_wheel(installed):
    shown = installed("demo")
    assert "ok     ddp-digits succeeded" in shown


def test_a_plane_its_doctor_and_a_bundle_need_no_checkout(installed, tmp_path):
    installed("local", "up", "--name", "installed")
    kubeconfig = installed("local", "kubeconfig", "--name", "installed").strip()
    found = installed("doctor", KUBECONFIG=kubeconfig)
    assert "kinds" not in [line.split()[1:2] for line in found.splitlines() if "fail" in line]
    bundle = tmp_path / "bundle.tar.gz"
    installed("support-bundle", bundle, "--hide-names", KUBECONFIG=kubeconfig)
    with tarfile.open(bundle) as files:
        assert any(name.endswith(".json") for name in files.getnames())
