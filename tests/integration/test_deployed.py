"""The shipped manifests on a real API server: their pods run on process nodes.

The Deployments' own pods run under their service accounts, with RBAC on and restricted pod
security; kube-scheduler reaches the leader by its Service, with mutual TLS.
"""

import asyncio
import contextlib
import json
import re
import subprocess
import tarfile
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from conftest import commands
from pages import Shell, items
from waiting import patience_s

from gangsched.cli.doctor import Finding, run_checks
from gangsched.cli.main import support_bundle
from gangsched.config import ConfigError
from gangsched.kube.client.client import KubeClient
from gangsched.local.plane import client_environment
from gangsched.shipped import yaml_documents

ROOT = Path(__file__).parents[2]
MANIFESTS = ROOT / "manifests"
HOME = "gangsched-system"
WAIT_S = 90
FOR_EVER = "sleep 1000000"


def pods(cluster, name) -> dict[str, dict]:
    """Return the living pods of a Deployment, by name."""
    listed = cluster.json("pods", "-n", HOME, "-l", f"app.kubernetes.io/name={name}")
    return {
        one["metadata"]["name"]: one
        for one in listed["items"]
        if one["status"].get("phase") == "Running" and "deletionTimestamp" not in one["metadata"]
    }


def leader(cluster) -> str:
    """Return the pod that leads, by its label."""

    def find() -> str:
        found = [
            name
            for name, pod in pods(cluster, "gangsched").items()
            if pod["metadata"]["labels"].get("gangsched.io/leader") == "true"
        ]
        return found[0] if len(found) == 1 else ""

    return cluster.wait(find, "one leader", WAIT_S)


def run(cluster, namespace, name, script="true", **spec) -> None:
    """Create a PyTorchJob of a master and a worker."""
    container = {
        "name": "pytorch",
        "image": "none",
        "command": ["sh", "-c", script],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
    }
    template = {"spec": {"containers": [container], "terminationGracePeriodSeconds": 0}}
    roles = {role: {"replicas": 1, "template": template} for role in ("Master", "Worker")}
    body = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name},
        "spec": {"pytorchReplicaSpecs": roles, **spec},
    }
    cluster.create_job(namespace, body)


@pytest.fixture
def home(deployed):
    """A namespace for jobs; both Deployments have all their pods."""
    for name in ("gangsched", "gangsched-kube-scheduler"):
        deployed.wait(lambda name=name: len(pods(deployed, name)) == 2, f"pods of {name}", WAIT_S)
    name = deployed.new_namespace()
    yield name
    deployed.remove_namespace(name)


def test_a_job_runs_through_what_was_deployed(deployed, home):
    leader(deployed)
    run(deployed, home, "j")
    deployed.wait(lambda: deployed.is_true(home, "j", "Succeeded"), "the job", WAIT_S)


def test_a_pod_without_a_controller_is_gated_and_bound(deployed, home):
    deployed.pod(home, "alone", gpus=1, kind="process")
    deployed.wait_placed(home, "alone", 1, WAIT_S)


def test_another_leads_when_the_leaders_pod_is_deleted(deployed, home):
    first = leader(deployed)
    run(deployed, home, "before", FOR_EVER)
    deployed.wait(lambda: deployed.is_true(home, "before", "Running"), "the job", WAIT_S)
    deployed.kubectl("delete", "pod", first, "-n", HOME, "--wait=false")
    deployed.wait(lambda: leader(deployed) != first, "another leader", WAIT_S)
    run(deployed, home, "after")
    deployed.wait(lambda: deployed.is_true(home, "after", "Succeeded"), "the job", WAIT_S)
    assert deployed.is_true(home, "before", "Running")


def test_metrics_are_for_those_who_may_read_them(deployed, home):
    """Asked from within the pod: its port is in the pods' network alone."""
    deployed.apply("default", _reader(home))
    pod = leader(deployed)
    code = (
        "import ssl, sys, urllib.request as u, urllib.error as e\n"
        "r = u.Request('https://localhost:8080/metrics')\n"
        "if sys.argv[1:]: r.add_header('Authorization', 'Bearer ' + sys.argv[1])\n"
        "try: print(u.urlopen(r, context=ssl._create_unverified_context()).status)\n"
        "except e.HTTPError as x: print(x.code)\n"
    )

    def status(*token: str) -> str:
        return deployed.kubectl("exec", "-n", HOME, pod, "--", "python", "-c", code, *token).strip()

    may = deployed.kubectl("create", "token", "prometheus", "-n", home).strip()
    may_not = deployed.kubectl("create", "token", "default", "-n", home).strip()

    def answer(*token: str) -> str:
        """Return what is answered once the API server could be asked for a review."""
        return deployed.wait(lambda: (code := status(*token)) != "503" and code, "a review")

    deployed.wait(lambda: status(may) == "200", "the role to be heard of")
    assert (answer(), answer("nonsense"), answer(may_not), answer(may)) == (
        "401",
        "401",
        "403",
        "200",
    )


ASK = (
    "import ssl, sys, urllib.request as u\n"
    "url, trusting = sys.argv[1], ssl._create_unverified_context()\n"
    f"print(u.urlopen(url, context=trusting, timeout={patience_s(20)}).status)\n"
)


@pytest.mark.parametrize("name", ["gangsched", "gangsched-kube-scheduler"])
def test_the_probes_ask_what_is_there(deployed, home, name):
    """Process nodes do not probe: here each probe is asked by hand, of leader and standby."""
    leader(deployed)
    for pod, body in pods(deployed, name).items():
        (container,) = body["spec"]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        probes = {key: container[key]["httpGet"] for key in container if key.endswith("Probe")}
        assert {"readinessProbe", "livenessProbe"} <= probes.keys()
        for key, probe in probes.items():
            url = f"{probe['scheme'].lower()}://localhost:{ports[probe['port']]}{probe['path']}"
            asked = ("exec", "-n", HOME, pod, "--", "python", "-c", ASK, url)
            deployed.wait(
                lambda asked=asked: deployed.kubectl(*asked, check=False).strip() == "200",
                f"{key} of {pod} at {url}",
                60,
            )


def test_the_audit_trail_is_in_the_leaders_log(deployed, home):
    queue = {
        "apiVersion": "gangsched.io/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "audited"},
        "spec": {"quotas": [{"resource": "nvidia.com/gpu", "nominal": 4}]},
    }
    deployed.apply("default", json.dumps(queue))
    deployed.wait(lambda: deployed.json("queue", "audited").get("status"), "the queue to be seen")
    queue["spec"]["weight"] = 3
    deployed.apply("default", json.dumps(queue))

    def told() -> dict:
        """Look into both logs: who led then may lead no more."""
        found = []
        for pod in pods(deployed, "gangsched"):
            text = deployed.kubectl("logs", "-n", HOME, pod)
            whole, _, _ = text.rpartition("\n")  # the last line may be on its way still
            found += [json.loads(line) for line in whole.splitlines() if line.startswith('{"at"')]
        return next((line for line in found if line["what"] == "QueueChanged"), {})

    assert deployed.wait(told, "a line")["fields"] == {"weight": [1.0, 3.0]}
    deployed.kubectl("delete", "queue", "audited")


def test_the_leader_serves_its_history(deployed, home, tmp_path):
    """docs/history.md, below `In a cluster`, for an account that may list all gangs."""
    run(deployed, home, "did-its-work")
    deployed.wait(lambda: deployed.is_true(home, "did-its-work", "Succeeded"), "the job", WAIT_S)
    deployed.kubectl("create", "clusterrolebinding", f"reads-{home}", "--clusterrole=cluster-admin",
                     f"--serviceaccount={home}:default")  # fmt: skip
    shell = Shell(tmp_path, deployed.plane.kubeconfig)
    shell.walk("docs/history.md", "In a cluster")
    config = yaml.safe_load((tmp_path / "kubeconfig").read_text())
    token = deployed.kubectl("create", "token", "default", "-n", home).strip()
    config["users"] = [{"name": config["users"][0]["name"], "user": {"token": token}}]
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    (asked,) = (one for one in items("docs/history.md") if "--leader https" in one.text)

    def listed() -> str:
        """Return what the leader of now answers; the record is written after the job's status."""
        with forwarded(deployed, f"pod/{leader(deployed)}", 8080) as port:
            text = shell.do(replace(asked, text=asked.text.replace("8080", str(port))))
        return text if "did-its-work" in text else ""

    text = deployed.wait(listed, "the record of the job", WAIT_S)
    (row,) = (line for line in text.splitlines() if "did-its-work" in line)
    assert "COMPLETED" in row.upper()
    deployed.kubectl("delete", "clusterrolebinding", f"reads-{home}")


def _reader(namespace: str) -> str:
    """Return an account that may read metrics, with the shipped role."""
    shipped = (MANIFESTS / "monitoring" / "service-monitor.yaml").read_text()
    (role,) = (d for d in yaml.safe_load_all(shipped) if d["kind"] == "ClusterRole")
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "prometheus", "namespace": namespace},
    }
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"metrics-{namespace}"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": role["metadata"]["name"],
        },
        "subjects": [{"kind": "ServiceAccount", "name": "prometheus", "namespace": namespace}],
    }
    return yaml.safe_dump_all([role, account, binding])


@contextlib.contextmanager
def forwarded(cluster, what="deploy/gangsched-web", port=8042):
    """Forward a free port, as the commands of docs/web.md and docs/history.md; yield its number."""
    command = (cluster.plane.info()["kubectl"], "port-forward", "-n", HOME)
    process = subprocess.Popen(
        (*command, what, f":{port}"),
        env=client_environment(cluster.plane),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        line = process.stdout.readline()
        free = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert free, line
        yield int(free[1])
    finally:
        process.kill()
        process.communicate()


def read_page(url: str, token: str, path: str) -> str:
    """Return a page as the viewer with a token reads it."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    form = urllib.parse.urlencode({"token": token}).encode()
    request = urllib.request.Request(f"{url}/login", form, {"Origin": url})
    opener.open(request, timeout=patience_s(30)).close()
    with opener.open(f"{url}{path}", timeout=patience_s(30)) as answer:
        return answer.read().decode()


def test_the_pages_are_served_to_tokens(deployed, home, tmp_path):
    """docs/web.md, below `In the cluster`, where another tenant's gang runs too."""
    leader(deployed)
    run(deployed, home, "own", FOR_EVER)
    deployed.wait(lambda: deployed.is_true(home, "own", "Running"), "the job", WAIT_S)
    deployed.kubectl("create", "role", "gangs", "-n", home, "--verb=list",
                     "--resource=podgroups.gangsched.io")  # fmt: skip
    deployed.kubectl("create", "rolebinding", "gangs", "-n", home, "--role=gangs",
                     f"--serviceaccount={home}:default")  # fmt: skip
    own = deployed.kubectl("create", "token", "default", "-n", home).strip()
    other = deployed.kubectl("create", "token", "default", "-n", "default").strip()
    Shell(tmp_path, deployed.plane.kubeconfig).walk("docs/web.md", "In the cluster")
    deployed.wait(lambda: len(pods(deployed, "gangsched-web")) == 1, "the pages' pod", WAIT_S)
    (pod,) = pods(deployed, "gangsched-web")
    (container,) = deployed.json("pod", pod, "-n", HOME)["spec"]["containers"]
    for probe in ("readinessProbe", "livenessProbe"):
        ask = ("exec", "-n", HOME, pod, "--", *container[probe]["exec"]["command"])
        deployed.wait(lambda ask=ask: not deployed.kubectl(*ask, check=False), probe, WAIT_S)
    with forwarded(deployed) as port:
        url = f"http://127.0.0.1:{port}"
        assert f"{home}/own" in read_page(url, own, "/gangs")
        assert home not in read_page(url, other, "/gangs")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            read_page(url, "nonsense", "/gangs")
    assert " code " not in deployed.kubectl("logs", "-n", HOME, pod)
    deployed.kubectl("delete", "deployment", "gangsched-web", "-n", HOME)


def test_clients_of_kueue_read_positions(deployed, home, tmp_path):
    """docs/web.md: the API server passes requests on to the pod of the pages."""
    leader(deployed)
    deployed.gang(home, "wide", 3, gpus=8)
    Shell(tmp_path, deployed.plane.kubeconfig).walk(
        "docs/web.md", "Pending workloads for clients of Kueue"
    )
    api = "/apis/visibility.kueue.x-k8s.io/v1beta2"
    local = f"{api}/namespaces/{home}/localqueues/default/pendingworkloads"

    def items(path, *more):
        text = deployed.kubectl("get", "--raw", path, *more, check=False)
        return json.loads(text)["items"] if text.startswith("{") else None

    deployed.wait(lambda: items(local), "the gang in its queue", WAIT_S)
    (own,) = items(local)
    assert (own["metadata"]["name"], own["metadata"]["namespace"]) == ("wide", home)
    assert own["localQueueName"] == "default"
    whole = items(f"{api}/clusterqueues/default/pendingworkloads")
    assert whole[own["positionInClusterQueue"]] == own
    assert items(f"{local}?offset=1") == []
    assert items(f"{api}/clusterqueues/none/pendingworkloads") is None
    user = f"system:serviceaccount:{home}:default"
    assert items(local, f"--as={user}") is None
    deployed.kubectl("create", "rolebinding", "views", "-n", home, "--clusterrole=view",
                     f"--user={user}")  # fmt: skip
    deployed.wait(lambda: items(local, f"--as={user}") == [own], "the role view", WAIT_S)
    assert items(f"{api}/clusterqueues/default/pendingworkloads", f"--as={user}") is None
    assert "pendingworkloads" not in deployed.kubectl("api-resources", "--api-group=kueue.x-k8s.io")
    deployed.kubectl("delete", "apiservice", "v1beta2.visibility.kueue.x-k8s.io")
    deployed.kubectl("delete", "deployment", "gangsched-web", "-n", HOME)


def test_the_other_overlays_are_taken_by_the_api_server(deployed):
    for name in ("direct", "development"):
        text = deployed.kubectl("kustomize", str(MANIFESTS / "overlays" / name))
        deployed.kubectl(
            "apply", "--server-side", "--force-conflicts", "--dry-run=server", "-f", "-", stdin=text
        )
    documents = yaml_documents(text)
    counts = {d["spec"]["replicas"] for d in documents if d["kind"] == "Deployment"}
    assert counts == {1}


def test_a_rack_of_a_local_plane_can_be_asked_for(deployed, home):
    code, said = deployed.gangsched("defrag", "--level", "rack")
    assert (code, said) == (0, "rack p-rack-0 is free already; no gang has to move\n")


def test_the_doctor_finds_what_is_broken(deployed, home):

    def content() -> str:
        """Return what is said once somebody leads, whose Lease is fresh."""
        code, said = deployed.gangsched("doctor")
        return "" if code else said

    said = deployed.wait(content, "the doctor to find nothing that fails")
    for words in ("leads", "the account has its", "18 kinds have every field", "Kubernetes v1."):
        assert words in said
    code, said = deployed.gangsched("doctor", "--namespace", "elsewhere")
    assert code == 1
    assert "there is no Lease elsewhere/gangsched" in said
    assert "the account may not" in said
    role = deployed.json("clusterrole", "gangsched")
    deployed.kubectl("delete", "clusterrole", "gangsched")

    async def examined() -> list[Finding]:
        async with KubeClient(deployed.plane.kubeconfig) as client:
            return await run_checks(client)

    def missed() -> list[str]:
        """Return what mends it, once the API server has heard that the role is gone."""
        found = [one for one in asyncio.run(examined()) if one.level == "fail"]
        return [one.remedy for one in found if "the account may not" in one.message]

    try:
        (mend,) = deployed.wait(missed, "the doctor to miss the rights")
    finally:
        deployed.kubectl("create", "-f", "-", stdin=json.dumps(_fresh(role)))
    assert mend.startswith("kubectl apply --server-side -k manifests/overlays/extender")


def _fresh(body: dict) -> dict:
    """Return an object to be created again."""
    metadata = {key: body["metadata"][key] for key in ("name", "labels")}
    return {**body, "metadata": metadata}


def test_a_support_bundle_has_no_secrets_and_no_names(deployed, home, tmp_path):
    leader(deployed)
    run(deployed, home, "hidden-model", f"{FOR_EVER}; echo topsecret")
    deployed.wait(lambda: deployed.is_true(home, "hidden-model", "Running"), "the job", WAIT_S)
    deployed.wait(
        lambda: deployed.group_status(home, "hidden-model").get("phase") == "Placed", "its group"
    )
    out = tmp_path / "bundle.tar.gz"
    code, said = deployed.gangsched("support-bundle", str(out), "--hide-names")
    assert code == 0, said
    with tarfile.open(out) as archive:
        files = {
            one.name.removeprefix("gangsched/"): archive.extractfile(one).read().decode()
            for one in archive.getmembers()
        }
    assert {"version.txt", "doctor.txt", "podgroups.json", "leases.json"} <= files.keys()
    assert {"nodes.json", "jobs/pytorchjobs.json", "plane.txt"} <= files.keys()
    assert any(name.endswith(".log") for name in files)
    groups = json.loads(files["podgroups.json"])
    assert any((group.get("status") or {}).get("phase") == "Placed" for group in groups)
    whole = "\n".join(files.values())
    for word in ("topsecret", "hidden-model", home, "PRIVATE KEY", "eyJ"):
        assert word not in whole
    with pytest.raises(ConfigError, match="exists; name a new file"):
        support_bundle(out)


def test_the_page_installs_and_upgrades(deployed, home, tmp_path):
    """The page's commands on what is installed already: they may be given again."""
    reader = Shell(tmp_path, deployed.plane.kubeconfig)
    reader.walk("docs/operations.md", "Install", "Upgrade")
    monitoring = ("apply", "--dry-run=server", "-k", str(MANIFESTS / "monitoring"))
    refused = 'no matches for kind "ServiceMonitor"'
    assert refused in deployed.kubectl(*monitoring, check=False)
    assert refused in (MANIFESTS.parent / "docs" / "operations.md").read_text()


def test_running_jobs_outlive_an_uninstallation(deployed, home):
    """The last test of this file: docs/operations.md's two commands, word for word.

    After it, test_image.py installs the image there.
    """
    run(deployed, home, "stays", FOR_EVER)
    deployed.wait(lambda: deployed.is_true(home, "stays", "Running"), "the job", WAIT_S)
    uninstall = commands("Uninstall")
    assert len(uninstall) == 2
    for command in uninstall:
        deployed.kubectl(*command, "--wait=false")
    deployed.wait(lambda: not pods(deployed, "gangsched"), "gangsched to go", WAIT_S)
    running = deployed.json("pods", "-n", home)["items"]
    assert [pod["status"]["phase"] for pod in running] == ["Running"] * 2
    assert deployed.is_true(home, "stays", "Running")
