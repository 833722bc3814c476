"""A real MLflow server for a local control plane, in a Python environment of its own.

Its pins must not meet those of gangsched. The environment lies in the user's cache, by the hash of
its pins, and sees the packages of this interpreter after its own: a program of a pod that needs
torch and MLflow's client finds both.
"""

import fcntl
import hashlib
import subprocess
import sys
import sysconfig
from pathlib import Path

from gangsched.local.components import cache
from gangsched.local.gobuild import BuildError, Progress

PINS = Path(__file__).with_name("requirements.txt")
_QUIET = ("--quiet", "--disable-pip-version-check", "--no-input")
_LINES_SHOWN = 5
_VARIABLES = (
    "MLFLOW_DISABLE_TELEMETRY=true",
    "DO_NOT_TRACK=true",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION=false",
)


def mlflow_programs(progress: Progress) -> Path:
    """Return the folder with the programs of the environment, which is installed if it is missing.

    Raises:
        BuildError: the packages cannot be installed.

    """
    folder = _environment()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may install the same
        if not (folder / "complete").exists():
            progress("installing MLflow (about 800 MB of packages the first time)")
            _run([sys.executable, "-m", "venv", str(folder)])
            python = str(folder / "bin" / "python")
            pins = ("--require-hashes", "-r", str(PINS))
            _run([python, "-m", "pip", "install", *_QUIET, *pins])
            path = Path(_run([python, "-c", "import sysconfig as s; print(s.get_path('purelib'))"]))
            (path / "gangsched-packages.pth").write_text(f"{_other_packages()}\n")
            (folder / "complete").touch()
    return folder / "bin"


def installed_programs() -> Path | None:
    """Return the folder with the programs of the environment, or None if it is not installed."""
    folder = _environment()
    return folder / "bin" if (folder / "complete").exists() else None


def _environment() -> Path:
    """Return the folder of the environment."""
    text = f"{sys.version}{_other_packages()}".encode()
    key = hashlib.sha256(PINS.read_bytes() + text).hexdigest()[:16]
    return cache() / "mlflow" / key


def _other_packages() -> str:
    """Return the folder with the packages of this interpreter."""
    return sysconfig.get_path("purelib")


def server_command(programs: Path, folder: Path, port: int) -> list[str]:
    """Return the command of the server: loopback only, its data in a folder."""
    data = folder / "mlflow"
    data.mkdir(exist_ok=True)
    return [
        *("env", *_VARIABLES),
        *(str(programs / "mlflow"), "server"),
        *("--host", "127.0.0.1", "--port", str(port), "--workers", "1"),
        *("--backend-store-uri", f"sqlite:///{data / 'mlflow.db'}"),
        *("--artifacts-destination", str(data / "artifacts")),
    ]


def tracking_settings(port: int, pods_host: str) -> dict[str, object]:
    """Return the settings of gangsched for the server; pods reach it at the same port."""
    return {
        "tracking": {
            "uri": f"http://127.0.0.1:{port}",
            "pods_uri": f"http://{pods_host}:{port}",
            "experiment_prefix": "",  # one user, and scripts that name their experiments
            "wait_s": 10.0,  # a laptop may be busy, and no other user waits
            "timeout_s": 10.0,
        }
    }


def _run(command: list[str]) -> str:
    """Run a command, and return what it prints.

    Raises:
        BuildError: it failed.

    """
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        tail = "\n".join(done.stderr.strip().splitlines()[-_LINES_SHOWN:])
        raise BuildError(f"installing MLflow failed:\n{tail}")
    return done.stdout.strip()
