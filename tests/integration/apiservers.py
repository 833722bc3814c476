"""Other versions of kube-apiserver than that of the local plane, for the version tests."""

from pathlib import Path

from gangsched.local import components
from gangsched.local.components import Component
from gangsched.local.gobuild import GoPackage

_HERE = Path(__file__).parent / "versions"
OWN = components.KUBERNETES.rpartition(".")[0]
VERSIONS = tuple(sorted((*(folder.name for folder in _HERE.iterdir()), OWN)))
"""The minor versions there is a kube-apiserver of, like v1.36."""


def api_server(version: str) -> Path:
    """Build the kube-apiserver of a minor version, if that was not done yet; return its path.

    Raises:
        BuildError: what the Go toolchain said.

    """
    if version == OWN:
        return components.program("kube-apiserver")
    component = Component((f"kube-apiserver-{version}",), _source(version))
    return components.ensure(print, (component,)) / component.names[0]


def _source(version: str) -> GoPackage:
    module = _HERE / version
    (required,) = (
        line.split()[1]
        for line in (module / "go.mod").read_text().splitlines()
        if line.startswith("\tk8s.io/kubernetes v")
    )
    return GoPackage(
        module,
        "k8s.io/kubernetes/cmd/kube-apiserver",
        components.kubernetes_ldflags(required),
        gcflags=components.GCFLAGS,
    )
