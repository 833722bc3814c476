"""Operators of others: each is built unchanged from a module with exact versions."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml

from gangsched.local import components, gobuild
from gangsched.local.components import Component
from gangsched.local.gobuild import Source

HERE = Path(__file__).parent / "operators"
_COMPILED = (("all", "-dwarf=false -c=1"),)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: its module, its program, and where its manifests are in the module.

    `folder` holds our go.mod; `deployment` is what of the manifests runs the program, with the
    `arguments` that are written there.
    """

    name: str
    module: str
    package: str
    overlay: str
    namespace: str
    deployment: str
    arguments: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Return the folder with go.mod and go.sum."""
        return HERE / self.name

    def program(self) -> Path:
        """Build the program, if that was not done yet; return its path.

        Raises:
            BuildError: what the Go toolchain said.

        """
        source = Source(self.folder, f"{self.module}/{self.package}", gcflags=_COMPILED)
        return components.ensure(print, (Component((self.name,), source),)) / self.name

    def source(self) -> Path:
        """Return the folder of the module: manifests and samples as they are shipped."""
        go = components.toolchain(print)
        command = [go, "list", "-m", "-f", "{{.Dir}}", self.module]
        found = gobuild.run(
            command, "finding the module", cwd=self.folder, env=gobuild.environment()
        )
        return Path(found.strip())

    def manifests(self, into: Path, arguments: tuple[str, ...], place: dict) -> Path:
        """Write its manifests for kubectl; return their folder.

        They are as they are shipped, but for the program's path, its arguments, and the `place` of
        its pods: fields of their spec.
        """
        shipped = into / "shipped"
        shutil.rmtree(shipped, ignore_errors=True)
        root = self.overlay.split("/", maxsplit=1)[0]
        shutil.copytree(self.source() / root, shipped / root, copy_function=shutil.copyfile)
        at = "/spec/template/spec"
        changes = [
            {"op": "add", "path": f"{at}/{key}", "value": value}
            for key, value in {
                "containers/0/command": [str(self.program())],
                "containers/0/args": [*self.arguments, *arguments],
                **place,
            }.items()
        ]
        patch = {
            "target": {"kind": "Deployment", "name": self.deployment},
            "patch": yaml.safe_dump(changes),
        }
        document = {"resources": [f"shipped/{self.overlay}"], "patches": [patch]}
        (into / "kustomization.yaml").write_text(yaml.safe_dump(document))
        return into


TRAINING = Operator(
    name="training-operator",
    module="github.com/kubeflow/training-operator",
    package="cmd/training-operator.v1",
    overlay="manifests/overlays/standalone",
    namespace="kubeflow",
    deployment="training-operator",
)

MPI = Operator(
    name="mpi-operator",
    module="github.com/kubeflow/mpi-operator",
    package="cmd/mpi-operator",
    overlay="manifests/overlays/standalone",
    namespace="mpi-operator",
    deployment="mpi-operator",
    arguments=("-alsologtostderr", "-lock-namespace=mpi-operator"),
)
