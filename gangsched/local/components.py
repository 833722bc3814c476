"""The programs of the local control plane, built once from Go modules into the user's cache.

Each folder of `golang/` pins its builds with go.mod and go.sum. The key of a build is the hash of
those files and of all flags, so a new version is built beside the old one, which stays usable.
"""

import fcntl
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from gangsched.local import gobuild
from gangsched.local.gobuild import GoPackage, Progress

KUBERNETES = "v1.36.3"
KWOK = "v0.8.0"

_HERE = Path(__file__).parent / "golang"

_COMPILED = "-dwarf=false -c=1"
"""Without debug information, and each package on one core: packages compile side by side."""
_COLD = f"{_COMPILED} -l"
"""Without inlining, for packages in which no time is spent: it saves a fifth of compiling them."""


@dataclass(frozen=True, slots=True)
class Component:
    """A program that is linked once, and the names of its copies."""

    names: tuple[str, ...]
    source: GoPackage


def kubernetes_ldflags(version: str) -> str:
    """Return the linker's flags that set the version, like v1.36.3, of Kubernetes' programs."""
    major, minor = version.removeprefix("v").split(".")[:2]
    values = {"gitVersion": version, "gitMajor": major, "gitMinor": minor}
    return " ".join(
        f"-X {package}.{key}={value}"
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
        for key, value in values.items()
    )


GCFLAGS = (
    ("all", _COMPILED),
    *(
        (f"{pattern}/...", _COLD)
        for pattern in (
            "github.com",
            "go.opentelemetry.io",
            "k8s.io/cli-runtime",
            "k8s.io/client-go/applyconfigurations",
            "k8s.io/client-go/informers",
            "k8s.io/client-go/kubernetes",
            "k8s.io/client-go/listers",
            "k8s.io/cloud-provider",
            "k8s.io/component-helpers",
            "k8s.io/cri-api",
            "k8s.io/cri-client",
            "k8s.io/csi-translation-lib",
            "k8s.io/dynamic-resource-allocation",
            "k8s.io/externaljwt",
            "k8s.io/kms",
            "k8s.io/kube-aggregator",
            "k8s.io/kubectl",
            "k8s.io/kubelet",
            "k8s.io/kubernetes",
            "k8s.io/metrics",
            "k8s.io/pod-security-admission",
            "sigs.k8s.io/kustomize",
            "sigs.k8s.io/kwok",
        )
    ),
    *(
        (f"{pattern}/...", _COMPILED)
        for pattern in (
            "github.com/fxamacker",
            "github.com/gogo/protobuf",
            "github.com/json-iterator",
            "github.com/modern-go",
            "github.com/prometheus",
            "k8s.io/kubernetes/pkg/apis/core",
            "k8s.io/kubernetes/pkg/registry/core",
            "k8s.io/kubernetes/pkg/scheduler",
        )
    ),
)

COLD_GCFLAGS = (("all", _COLD), ("std", _COMPILED))
"""For programs that do little; Go's own packages are compiled once for all programs."""

CONTROL_PLANE = (
    Component(
        (
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubectl",
            "kwok",
        ),
        GoPackage(
            _HERE / "controlplane",
            ".",
            f"{kubernetes_ldflags(KUBERNETES)} -X sigs.k8s.io/kwok/pkg/consts.Version={KWOK}",
            gcflags=GCFLAGS,
        ),
    ),
)

_CAPABILITIES = "helm.sh/helm/v3/pkg/chartutil.k8sVersion"
HELM = (
    Component(
        ("helm",),
        GoPackage(
            _HERE / "controlplane",
            "helm.sh/helm/v3/cmd/helm",
            " ".join(
                f"-X {_CAPABILITIES}{part}={value}"
                for part, value in zip(("Major", "Minor"), KUBERNETES[1:].split("."), strict=False)
            ),
            gcflags=GCFLAGS,
        ),
    ),
)
"""For the tests of the chart; it shares most of its packages with the control plane."""

MONITORING = tuple(
    Component(
        (name,),
        GoPackage(
            _HERE / "prometheus",
            f"github.com/prometheus/prometheus/cmd/{name}",
            tags="remove_all_sd,enable_kubernetes_sd,netgo",  # of 20 ways to find targets, one
            gcflags=(*COLD_GCFLAGS, ("github.com/prometheus/...", _COMPILED)),
        ),
    )
    for name in ("prometheus", "promtool")
)
"""For the tests of dashboards and rules. Its dependencies are newer than what Kubernetes pins."""

IMAGES = (
    Component(
        ("umoci",),
        GoPackage(
            _HERE / "images",
            "github.com/opencontainers/umoci/cmd/umoci",
            gcflags=(*COLD_GCFLAGS, ("github.com/klauspost/...", _COMPILED)),
        ),
    ),
)
"""Packs the container image, and unpacks it for a test."""

_STAGES = (
    "node/fast/node-initialize.yaml",
    "node/heartbeat-with-lease/node-heartbeat-with-lease.yaml",
    "pod/fast/pod-ready.yaml",
    "pod/fast/pod-complete.yaml",
    "pod/fast/pod-delete.yaml",
)
STAGES = "kwok-stages.yaml"


def ensure(progress: Progress, components: Sequence[Component] = CONTROL_PLANE) -> Path:
    """Build missing programs; return the folder with all programs of these components.

    Raises:
        BuildError: no Go toolchain could be had, or a build failed.

    """
    folder = cache() / "bin" / _key(components)
    if (folder / "complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may build the same
        if not (folder / "complete").exists():
            go = go_toolchain(progress)
            for component in components:
                _build(go, component, folder, progress)
            (folder / "complete").touch()
    return folder


def program(name: str) -> Path:
    """Return the path of a program of the control plane."""
    return ensure(lambda _: None) / name


def cache() -> Path:
    """Return the user's cache folder for gangsched."""
    return Path(platformdirs.user_cache_dir("gangsched"))


def go_toolchain(progress: Progress) -> str:
    """Return a Go that is new enough; without one, install it into the user's cache."""
    return gobuild.toolchain(cache(), progress)


def _key(components: Sequence[Component]) -> str:
    digest = hashlib.sha256()
    for component in components:
        digest.update(f"{component.names}{component.source.flags()}".encode())
        for path in sorted(component.source.module.iterdir()):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _build(go: str, component: Component, folder: Path, progress: Progress) -> None:
    first, *others = component.names
    target = folder / ("controlplane" if others else first)
    if not target.exists():
        gobuild.build(go, component.source, target, progress)
    for name in component.names:
        if name != target.name:
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(target.name)
    if "kwok" in component.names:
        _stages(go, component.source.module, folder)


def _stages(go: str, module: Path, folder: Path) -> None:
    """Copy KWOK's own stages of nodes and pods from its module."""
    module_folder = gobuild.run(
        [go, "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok"],
        "finding KWOK's stages",
        cwd=module,
        env=gobuild.go_environment(),
    )
    stages = Path(module_folder.strip()) / "kustomize" / "stage"
    (folder / STAGES).write_text("\n---\n".join((stages / name).read_text() for name in _STAGES))
