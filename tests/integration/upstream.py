"""Other operators, each built unchanged from a module with exact versions."""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml
from cluster import Cluster

from gangsched.local import components, gobuild
from gangsched.local.components import Component
from gangsched.local.gobuild import GoPackage

HERE = Path(__file__).parent / "operators"
WITNESSES: list[Callable[[Cluster, "Operator"], None]] = []
"""Told of each operator that is installed on a control plane (`witness.py`)."""
_WITH_INLINING = (("all", "-dwarf=false -c=1"),)


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator: its module, its program, and where its manifests are in the module.

    `folder` holds our go.mod; `deployment` is what of the manifests runs the program, with the
    `arguments` that are written there. It makes the `certificate` of its webhooks itself, in a
    Secret of that name. `apart` is what its overlay brings of others, and is left out. `toolchain`
    is a version of Go that it needs and that may not be installed. One whose time is `measured` by
    a benchmark is compiled with inlining, as upstream does; for the others that takes too long.
    """

    name: str
    module: str
    package: str
    overlay: str
    namespace: str
    deployment: str
    arguments: tuple[str, ...] = ()
    certificate: str = ""
    apart: str = ""
    toolchain: str = "local"
    measured: bool = False

    @property
    def folder(self) -> Path:
        """Return the folder with go.mod and go.sum."""
        return HERE / self.name

    def program(self) -> Path:
        """Build the program, if that was not done yet; return its path.

        Raises:
            BuildError: what the Go toolchain said.

        """
        source = GoPackage(
            self.folder,
            f"{self.module}/{self.package}",
            gcflags=_WITH_INLINING if self.measured else components.COLD_GCFLAGS,
            toolchain=self.toolchain,
        )
        return components.ensure(print, (Component((self.name,), source),)) / self.name

    def source(self) -> Path:
        """Return the folder of the module: manifests and samples as they are shipped."""
        go = components.go_toolchain(print)
        found = gobuild.run(
            [go, "mod", "download", "-json", self.module],
            f"downloading {self.module}",
            cwd=self.folder,
            env=gobuild.go_environment(self.toolchain),
        )
        return Path(json.loads(found)["Dir"])

    def manifests(self, into: Path, arguments: tuple[str, ...], place: dict) -> Path:
        """Write its manifests for kubectl; return their folder.

        They are as they are shipped, but for the program's path, its arguments, and the `place` of
        its pods: fields of their spec.
        """
        shipped = into / "shipped"
        shutil.rmtree(shipped, ignore_errors=True)
        root = self.overlay.split("/", maxsplit=1)[0]
        shutil.copytree(self.source() / root, shipped / root, copy_function=shutil.copyfile)
        if self.apart:
            _leave_out(shipped / self.overlay / "kustomization.yaml", self.apart)
        fields = {"containers/0/command": [str(self.program())], **place}
        if said := [*self.arguments, *arguments]:
            fields["containers/0/args"] = said
        at = "/spec/template/spec"
        changes = [
            {"op": "add", "path": f"{at}/{key}", "value": value} for key, value in fields.items()
        ]
        patch = {
            "target": {"kind": "Deployment", "name": self.deployment},
            "patch": yaml.safe_dump(changes),
        }
        document = {"resources": [f"shipped/{self.overlay}"], "patches": [patch]}
        (into / "kustomization.yaml").write_text(yaml.safe_dump(document))
        return into


def _leave_out(path: Path, resource: str) -> None:
    """Leave a resource out of a kustomization."""
    path.chmod(0o644)
    body = yaml.safe_load(path.read_text())
    body["resources"].remove(resource)
    path.write_text(yaml.safe_dump(body))


TRAINING = Operator(
    name="training-operator",
    module="github.com/kubeflow/training-operator",
    package="cmd/training-operator.v1",
    overlay="manifests/overlays/standalone",
    namespace="kubeflow",
    deployment="training-operator",
    certificate="training-operator-webhook-cert",
)

MPIS = {
    version: Operator(
        name=f"mpi-operator-{version}",
        module="github.com/kubeflow/mpi-operator",
        package="cmd/mpi-operator",
        overlay="manifests/overlays/standalone",
        namespace="mpi-operator",
        deployment="mpi-operator",
        arguments=("-alsologtostderr", "-lock-namespace=mpi-operator"),
    )
    for version in ("0.6", "0.7")
}

JOBSETS = {
    version: Operator(
        name=f"jobset-{version}",
        module="sigs.k8s.io/jobset",
        package=".",
        overlay="config/default",
        namespace="jobset-system",
        deployment="jobset-controller-manager",
        certificate="jobset-webhook-server-cert",
    )
    for version in ("0.10", "0.11")
}
TRAINERS = {
    version: Operator(
        name=f"trainer-{version}",
        module="github.com/kubeflow/trainer/v2",
        package="cmd/trainer-controller-manager",
        overlay="manifests/overlays/manager",
        namespace="kubeflow-system",
        deployment="kubeflow-trainer-controller-manager",
        certificate="kubeflow-trainer-webhook-cert",
        apart="../../third-party/jobset",  # JobSet's release, which is downloaded
    )
    for version in ("2.1", "2.2")
}
KUEUE = Operator(
    name="kueue",
    module="sigs.k8s.io/kueue",
    package="cmd/kueue",
    overlay="config/default",
    namespace="kueue-system",
    deployment="kueue-controller-manager",
    certificate="kueue-webhook-server-cert",
)

LWS = Operator(
    name="lws",
    module="sigs.k8s.io/lws",
    package="cmd",
    overlay="config/default",
    namespace="lws-system",
    deployment="lws-controller-manager",
    certificate="lws-webhook-server-cert",
)

KUBERAY = Operator(
    name="kuberay",
    module="github.com/ray-project/kuberay/ray-operator",
    package=".",
    overlay="config/default",
    namespace="default",
    deployment="kuberay-operator",
    arguments=("--feature-gates=RayClusterStatusConditions=true",),
)

KARPENTER = Operator(
    name="karpenter",
    module="sigs.k8s.io/karpenter",
    package="kwok",
    overlay="",
    namespace="",
    deployment="",
    toolchain="go1.26.9",
    measured=True,
)
"""With its provider of KWOK nodes. It has a Helm chart alone, so it runs beside the plane."""


@contextlib.contextmanager
def installing(plane: Cluster, folder: Path, place: dict) -> Iterator[Callable[..., None]]:
    """Yield what installs an operator as it is shipped; it does not run any more afterwards.

    Each operator brings kinds of its own; those of `kinds` are removed before.
    """
    installed: list[Operator] = []

    def it(operator: Operator, *arguments: str, kinds: tuple[str, ...] = ()) -> None:
        crds = [f"crd/{kind}" for kind in kinds]
        if crds:
            plane.kubectl("delete", "--ignore-not-found", *crds)
        installed.append(operator)
        for witness in WITNESSES:
            witness(plane, operator)
        into = folder / operator.name
        into.mkdir(exist_ok=True)
        operator.manifests(into, arguments, place)
        plane.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(into))

    yield it
    # What calls their webhooks would be refused.
    for kind in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        plane.kubectl("delete", kind, "--all")
    for operator in installed:
        plane.kubectl("delete", "pods", "--all", "--force", "-n", operator.namespace)
        plane.kubectl("delete", "deployment", operator.deployment, "-n", operator.namespace)


def ready(cluster: Cluster, operator: Operator) -> None:
    """Wait until an operator's pod runs, with the certificate of its webhooks."""
    if operator.certificate:
        _certified(cluster, operator)
    running(cluster, operator)


def running(cluster: Cluster, operator: Operator) -> None:
    """Wait until all of an operator's pods run as its Deployment says now."""

    def runs() -> bool:
        home = ("-n", operator.namespace)
        found = cluster.json("deployment", operator.deployment, *home)
        status = found["status"]
        seen = status.get("observedGeneration") == found["metadata"]["generation"]
        wanted = found["spec"]["replicas"]
        return seen and status.get("readyReplicas") == status.get("updatedReplicas") == wanted

    cluster.wait(runs, f"{operator.name} to run", 120)


def _certified(cluster: Cluster, operator: Operator) -> None:
    """Wait until an operator has written its certificate, and let it see it.

    A kubelet brings a mounted Secret up to date; process nodes mount it as it is at the start.
    """
    home = ("-n", operator.namespace)

    def made() -> bool:
        found = cluster.json("secret", operator.certificate, *home)
        return "tls.crt" in (found.get("data") or {})

    cluster.wait(made, f"{operator.name} to make its certificate", 120)
    cluster.kubectl("rollout", "restart", f"deployment/{operator.deployment}", *home)


def create(cluster: Cluster, text: str) -> None:
    """Create an object as soon as its kind is served and its webhooks answer.

    Process nodes do not ask a pod whether its webhooks answer.
    """
    command = ("create", "-f", "-")
    cluster.wait(
        lambda: cluster.kubectl(*command, stdin=text, check=False).endswith(" created\n"),
        "the object to be taken",
        120,
    )


def explained(cluster: Cluster, namespace: str, name: str) -> str:
    """Return what a user is told of a gang."""
    return cluster.gangsched("explain", f"{namespace}/{name}")[1]


def has_no_room(explained: str) -> bool:
    """Return whether a gang waits for capacity; if its pods differ, no count is given."""
    return "and the free capacity takes" in explained or "pods together" in explained


if __name__ == "__main__":
    TRAINING.program()  # what `make test` runs
