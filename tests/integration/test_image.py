"""The container image works: built, unpacked as by a runtime, and started.

Its parts but gangsched itself come from the user's cache; nothing here needs root.
"""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from conftest import commands
from test_deployed import HOME, MANIFESTS, WAIT_S, leader, pods
from test_deployed import run as start
from test_installed import UV
from waiting import patience_s

from gangsched.local import components
from gangsched.local.loading import load

ROOT = Path(__file__).parents[2]
UNUSED = {"__pycache__", "tests", "include"}
TOOLS = {"pip", "uv", "setuptools", "gcc", "cc", "make", "dpkg", "apt", "apt-get", "perl", "sh"}

SCENARIO = """
version: gangsched.io/simulation/v1
name: small
cluster:
  nodes:
  - {name: node, count: 4, gpus: 8, cpu: "96", memory: 1Ti}
workload:
  generators:
  - {jobs: 20, every: 15m, runtime: 1h, longest: 4h, pods: {1: 60, 2: 40}, gpus: {8: 1}}
seeds: [0]
"""

CONTAINER = """
root=$0 written=$1
mount --bind "$root" "$root"
mount -o remount,bind,ro "$root"
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
mount --bind "$written" "$root/tmp"
shift
exec unshare --user --map-user=65532 --map-group=65532 --root "$root" --wd / "$@"
"""
"""A container, as few words as will do: a root that is read-only but for /tmp, and a plain user."""


OWN = {"HOME": "/tmp", "PYTHONPYCACHEPREFIX": "/tmp/compiled"}
"""What the container is given beside the image's variables; what is imported is compiled once."""


def run(*command, **more):
    """Run to the end; return what was printed."""
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        timeout=patience_s(300),
        check=False,
        **more,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def build(folder, *words, **more):
    """Build the image; return the manifest's digest."""
    said = run(sys.executable, ROOT / "manifests/image/build.py", "--out", folder, *words, **more)
    return said.split()[-1]


@pytest.fixture(scope="module")
def image(tmp_path_factory, deployed):
    """Return the image's folder, its digest, its configuration and its root folder.

    It is unpacked into the control plane, where pods that name it run on it.
    """
    folder = tmp_path_factory.mktemp("image")
    digest = build(folder)
    (described,) = json.loads((folder / "oci/index.json").read_text())["manifests"]
    tag = described["annotations"]["org.opencontainers.image.ref.name"]
    root = load(deployed.plane, folder / "oci", f"gangsched:{tag}", lambda _: None)
    return folder, digest, json.loads((root.parent / "config.json").read_text()), root


def inside(image, *command, **variables):
    """Run a command in a container of the image; return what it printed."""
    _, _, config, root = image
    own = dict(line.split("=", 1) for line in config["Env"]) | OWN
    enter = ("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child")
    script = ("/bin/sh", "-ec", CONTAINER, root, written(image), *command)
    return run(*enter, *script, env=own | variables)


def written(image):
    """Return the folder that is /tmp in every container of the image."""
    folder = image[0] / "tmp"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.long
def test_the_same_sources_give_the_same_image(image, tmp_path):
    folder, digest, *_ = image
    assert build(tmp_path / "again") == digest
    (first,), (second,) = folder.glob("*.tar"), (tmp_path / "again").glob("*.tar")
    assert first.read_bytes() == second.read_bytes()


def test_a_build_that_fails_leaves_what_was_there(image):
    folder, digest, *_ = image
    with pytest.raises(AssertionError, match="running apt-get failed"):
        build(folder, "--mirror", "http://127.0.0.1:9/")
    assert digest.partition(":")[2] in (folder / "oci/index.json").read_text()
    assert list(components.cache().glob("image/trixie-*/*.deb"))


@pytest.mark.long
def test_the_same_packages_and_wheels_give_the_same_layers(image, tmp_path):
    """All is made once more, of packages and programs that are in the user's cache."""
    _, digest, *_ = image
    cache, own = components.cache(), tmp_path / "cache/gangsched"
    (own / "image").mkdir(parents=True)
    for name in ("bin", *(path.relative_to(cache) for path in cache.glob("image/trixie-*"))):
        (own / name).symlink_to(cache / name)
    again = {
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "UV_CACHE_DIR": run(UV, "cache", "dir").strip(),
    }
    assert build(tmp_path / "again", env=os.environ | again) == digest
    assert list(own.glob("image/base-*")), "they came from the user's cache"


def test_nothing_is_in_it_that_is_not_run(image):
    *_, root = image
    (packages,) = root.glob("usr/local/lib/python*/dist-packages")
    assert not UNUSED & {path.name for path in packages.rglob("*") if path.is_dir()}
    assert not list(root.rglob("*.pyc"))
    programs = (*packages.iterdir(), *root.glob("usr/*bin/*"), *root.glob("usr/local/*bin/*"))
    assert not TOOLS & {path.name for path in programs}


def test_the_tar_is_one_that_docker_loads(image):
    folder, *_ = image
    (tar,) = folder.glob("*.tar")
    with tarfile.open(tar) as files:
        (listed,) = json.load(files.extractfile("manifest.json"))
        assert {*listed["Layers"], listed["Config"], "oci-layout"} <= set(files.getnames())
    assert listed["RepoTags"] == [f"gangsched:{tar.stem.partition('-')[2]}"]


def test_its_entry_point_runs_as_a_plain_user_on_a_read_only_root(image):
    _, _, config, _ = image
    said = inside(image, *config["Entrypoint"], "--version")
    assert said.startswith("gangsched ")
    who = "import os; print(os.getuid(), os.getgid(), os.access('/usr', os.W_OK))"
    assert inside(image, "python", "-c", who).split() == ["65532", "65532", "False"]
    assert config["User"] == "65532:65532"


def test_it_simulates(image):
    """It holds the wheel and what the lock names: a simulation needs no checkout."""
    (written(image) / "scenario.yaml").write_text(SCENARIO)
    where = ("--out", "/tmp/out", "--processes", "1")
    inside(image, "gangsched", "simulate", "/tmp/scenario.yaml", *where)
    assert list((written(image) / "out").rglob("*.html"))


def names_of_namespaces(cluster) -> list[str]:
    return [one.metadata.name for one in cluster.core.list_namespace().items]


def test_what_is_deployed_runs_on_it(image, deployed):
    """The manifests name the image: their pods have its root, and no right to write there."""
    for command in commands("Uninstall"):
        deployed.kubectl(*command, "--ignore-not-found", "--wait=false")
    deployed.wait(lambda: not pods(deployed, "gangsched"), "what was installed to go", WAIT_S)
    deployed.wait(lambda: HOME not in names_of_namespaces(deployed), f"{HOME} to go", WAIT_S)
    deployed.kubectl("apply", "--server-side", "-k", f"{MANIFESTS}/overlays/direct")
    pod = leader(deployed)
    who = "import os, gangsched; print(os.getuid(), os.access('/usr', os.W_OK), gangsched.__file__)"
    said = deployed.kubectl("exec", "-n", HOME, pod, "--", "python", "-c", who).split()
    assert said[:2] == ["65532", "False"]
    assert said[2].startswith("/usr/local/lib/python3.13/")
    home = deployed.new_namespace()
    start(deployed, home, "j")
    deployed.wait(lambda: deployed.is_true(home, "j", "Succeeded"), "the job", WAIT_S)
    # Beside the cluster, with this machine's network.
    whole = deployed.kubectl("config", "view", "--raw", "--flatten")
    (written(image) / "config").write_text(whole)
    assert "ok" in inside(image, "gangsched", "doctor", KUBECONFIG="/tmp/config")
