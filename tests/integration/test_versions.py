"""Every supported version of Kubernetes accepts the manifests, and a gang starts."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from apiservers import VERSIONS, api_server
from cluster import Cluster
from conftest import KWOK, a_plane
from waiting import patience_s, until

from gangsched.cli.doctor import run_checks
from gangsched.kube.client.client import KubeClient
from gangsched.local import components
from gangsched.local.nodes import NodeFile
from gangsched.local.plane import PlaneOptions, client_environment

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
CHART = str(ROOT / "manifests" / "chart" / "gangsched")
HOME = "gangsched-system"
BEFORE = ("v1.34", "v1.35")
"""They have MutatingAdmissionPolicy only where that is asked for, and then in another version."""
BETA = (
    "--feature-gates=MutatingAdmissionPolicy=true "
    "--runtime-config=admissionregistration.k8s.io/v1beta1=true"
)
ASKED = [*((version, "") for version in VERSIONS), *((version, BETA) for version in BEFORE)]


def plane(version: str, binding: str, flags: str = "", **more):
    """Start a control plane with the kube-apiserver of a version; the rest of it is our own."""
    name = f"test-{version.replace('.', '-')}-{binding}"
    flagged = (("kube-apiserver", flags),)
    options = PlaneOptions(binding=binding, api_server=api_server(version), flags=flagged, **more)
    return a_plane(name, NodeFile(nodes=(KWOK,)), options)


@pytest.fixture(scope="module", params=ASKED, ids=lambda one: f"{one[0]}{' beta' * bool(one[1])}")
def empty(request):
    """A version, the version of its policies, and a cluster that knows nothing of us yet."""
    version, flags = request.param
    policies = "v1" if version not in BEFORE else "v1beta1" if flags else ""
    with plane(version, "off", flags, bare=True) as made:
        yield version, policies, Cluster(made, "off")


def helm(cluster: Cluster, *words: str) -> str:
    """Run Helm against a cluster; return what it said."""
    program = components.ensure(print, components.HELM) / "helm"
    command = [str(program), *words, "-n", HOME]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=client_environment(cluster.plane)
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def policies_of(text: str) -> set[str]:
    """Return in which versions the admission policies of some objects are."""
    documents = [one for one in yaml.safe_load_all(text) if one]
    kinds = ("MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding")
    return {one["apiVersion"].rpartition("/")[2] for one in documents if one["kind"] in kinds}


def taken(cluster: Cluster, *words: str, stdin: str | None = None) -> None:
    """Apply objects with strict validation, all of which are taken.

    For the first seconds an API server may not know kinds that are new, as docs/operations.md says.
    """
    flags = ("--server-side", "--force-conflicts", "--validate=strict")

    said = ""

    def done() -> bool:
        nonlocal said
        said = cluster.kubectl("apply", *flags, *words, stdin=stdin, check=False)
        return all(" serverside-applied" in line for line in said.splitlines())

    until(done, "everything to be taken", shown=lambda: said)


def test_helm_installs_it_and_says_what_is_missing(empty):
    version, policies, cluster = empty
    said = " ".join(helm(cluster, "install", "gangsched", CHART, "--create-namespace").split())
    assert ("does not serve MutatingAdmissionPolicy" in said) is not bool(policies)
    assert policies_of(helm(cluster, "get", "manifest", "gangsched")) == {policies} - {""}
    there = cluster.json("deployments", "-n", HOME)["items"]
    images = {one["spec"]["template"]["spec"]["containers"][0]["image"] for one in there}
    old = version in BEFORE
    assert images >= {f"registry.k8s.io/kube-scheduler:{'v1.34.4' if old else 'v1.36.3'}"}
    helm(cluster, "uninstall", "gangsched")


def test_what_helm_writes_without_an_api_server_is_taken(empty):
    version, policies, cluster = empty
    flags = ["--kube-version", f"{version}.0"]
    if policies == "v1beta1":  # as Argo CD says it
        flags += ["--api-versions", "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy"]
    for binding in ("extender", "direct"):
        text = helm(cluster, "template", "gangsched", CHART, *flags, "--set", f"binding={binding}")
        assert policies_of(text) == {policies} - {""}
        taken(cluster, "--dry-run=server", "-f", "-", stdin=text)


def test_the_overlays_are_taken(empty, tmp_path):
    version, policies, cluster = empty
    end = "-1.34" if version in BEFORE else ""
    folders = [f"overlays/extender{end}", f"overlays/direct{end}"]
    folders += [] if end else ["overlays/development"]
    if policies == "v1beta1":  # docs/operations.md, Versions of Kubernetes
        names = {
            key: str(ROOT / "manifests" / key) for key in ("overlays/extender", "policies/v1beta1")
        }
        near = {key: os.path.relpath(path, tmp_path) for key, path in names.items()}
        own = {"resources": [near["overlays/extender"]], "components": [near["policies/v1beta1"]]}
        (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(own))
        folders = [str(tmp_path)]
    taken(cluster, "-k", str(ROOT / "crds"))
    patience = f"--timeout={patience_s(30):.0f}s"
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", patience)
    for folder in folders:
        text = cluster.kubectl("kustomize", str(ROOT / "manifests" / folder))
        taken(cluster, "-f", "-", stdin=text)
        assert policies_of(text) == {policies} - {""}


def test_the_doctor_says_what_is_missing(empty):
    _, policies, cluster = empty

    async def examined() -> list[str]:
        async with KubeClient(cluster.plane.kubeconfig) as client:
            return [one.message for one in await run_checks(client) if one.level != "ok"]

    said = asyncio.run(examined())
    assert any("MutatingAdmissionPolicy is not served" in one for one in said) is not bool(policies)
    assert any("does not note who asks" in one for one in said) is not bool(policies)


@pytest.mark.parametrize("binding", ["direct", "extender"])
@pytest.mark.parametrize("version", VERSIONS)
def test_a_gang_starts(version, binding):
    with plane(version, binding) as made:
        cluster = Cluster(made, binding)
        namespace = cluster.new_namespace()
        cluster.gang(namespace, "g", 3)
        cluster.wait_placed(namespace, "g-", 3)
        cluster.gang(namespace, "large", 5)
        cluster.wait_event(namespace, "LargerThanCluster", name="large")
        assert not cluster.bound(namespace, "large-")
