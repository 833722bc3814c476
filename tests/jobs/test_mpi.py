"""MPIJob, row by row: the objects of v1 and v2beta1, and the end of a job."""

from dataclasses import replace

import pytest

from gangsched.jobs.common.clock import Clock
from gangsched.jobs.common.model import V1, V2BETA1, GroupView, Observed, PodView, TrainingJob
from gangsched.jobs.kubeflow.kinds import FRAMEWORKS
from gangsched.jobs.kubeflow.reconcile import reconcile
from gangsched.operators.job_kind import InvalidJobError
from gangsched.operators.kinds.training_job import parse

CLOCK = Clock(1_700_000_000.0, "2023-11-14T22:13:20Z")
MPI = FRAMEWORKS["MPIJob"]


def body(version: str = V2BETA1, workers: int = 2, launcher: dict | None = None, **spec) -> dict:
    """Return a job as the version's users write it, read through v1."""
    replicas = {
        "Launcher": {"template": {"spec": {"containers": [{"name": "mpi", **(launcher or {})}]}}}
    }
    if workers:
        template = {"spec": {"containers": [{"name": "mpi", "image": "x"}]}}
        replicas["Worker"] = {"replicas": workers, "template": template}
    early, late = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    owned = {"f:spec": {"f:mpiReplicaSpecs": {}}}
    writer = {"apiVersion": version, "time": early, "fieldsV1": owned}
    later = {"apiVersion": V1, "time": late, "fieldsV1": owned}
    aside = {"apiVersion": V1, "time": early, "fieldsV1": {"f:spec": {"f:runPolicy": {}}}}
    return {
        "apiVersion": V1,
        "metadata": {
            "name": "j",
            "namespace": "ns",
            "uid": "u",
            "managedFields": [aside, later, writer],
        },
        "spec": {"mpiReplicaSpecs": replicas, **spec},
    }


def job(version: str = V2BETA1, **more) -> TrainingJob:
    """Return a parsed job."""
    return parse(body(version, **more), "gangsched", "MPIJob")


def template(parsed: TrainingJob, role: str, index: int = 0) -> dict:
    """Return a pod's template."""
    return MPI.pod_template(parsed, parsed.role(role), index)


def main(found: dict) -> dict:
    """Return the container of a template."""
    return found["spec"]["containers"][0]


def variables(parsed: TrainingJob, role: str) -> dict:
    """Return the variables of a role's container."""
    return {one["name"]: one["value"] for one in main(template(parsed, role)).get("env") or []}


def pods(parsed: TrainingJob, ready: bool = True, reason: str = "", **phases: str) -> Observed:
    """Return the pods of a job, in a placed gang; phases are words, in order."""
    found = tuple(
        PodView(
            "j-launcher" if role == "launcher" else f"j-{role}-{i}",
            f"{role}{i}",
            role,
            phase,
            exit_code=int(phase == "Failed"),
            ready=ready and phase == "Running",
            reason=reason if phase == "Failed" else "",
        )
        for role, text in phases.items()
        for i, phase in enumerate(text.split())
    )
    names = [parsed.pod_name(role, i) for role in parsed.roles for i in range(role.replicas)]
    return Observed(found, frozenset(), GroupView("g", "Placed", "", dict.fromkeys(names, "n")))


def documents(parsed: TrainingJob, seen: Observed) -> dict[str, dict]:
    """Return a job's further objects, by kind."""
    return {one["kind"]: one for one in MPI.documents(parsed, seen)}


NO_GPU = {"NVIDIA_VISIBLE_DEVICES": "", "NVIDIA_DRIVER_CAPABILITIES": ""}
SSH = "-o ConnectionAttempts=10"
ENVIRONMENTS = {
    "Open MPI by ssh": (
        {"slotsPerWorker": 4},
        {
            "K_MPI_JOB_ROLE": "launcher",
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
            "OMPI_MCA_plm_rsh_args": SSH,
            "OMPI_MCA_orte_set_default_slots": "4",
            **NO_GPU,
        },
    ),
    "Intel": (
        {"mpiImplementation": "Intel", "slotsPerWorker": 2},
        {
            "K_MPI_JOB_ROLE": "launcher",
            "I_MPI_HYDRA_HOST_FILE": "/etc/mpi/hostfile",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": SSH,
            "I_MPI_PERHOST": "2",
            **NO_GPU,
        },
    ),
    "MPICH": (
        {"mpiImplementation": "MPICH"},
        {
            "K_MPI_JOB_ROLE": "launcher",
            "HYDRA_HOST_FILE": "/etc/mpi/hostfile",
            "HYDRA_LAUNCH_EXTRA_ARGS": SSH,
            **NO_GPU,
        },
    ),
    "a launcher that works sees its GPUs": (
        {"runLauncherAsWorker": True, "mpiImplementation": "MPICH"},
        {
            "K_MPI_JOB_ROLE": "launcher",
            "HYDRA_HOST_FILE": "/etc/mpi/hostfile",
            "HYDRA_LAUNCH_EXTRA_ARGS": SSH,
        },
    ),
    "v1, by kubectl exec": (
        {"version": V1},
        {
            "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
            "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
            "I_MPI_HYDRA_BOOTSTRAP": "rsh",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": "/etc/mpi/kubexec.sh",
            **NO_GPU,
        },
    ),
    "v1, a launcher with a GPU": (
        {"version": V1, "launcher": {"resources": {"limits": {"nvidia.com/gpu": 1}}}},
        {
            "OMPI_MCA_plm_rsh_agent": "/etc/mpi/kubexec.sh",
            "OMPI_MCA_orte_default_hostfile": "/etc/mpi/hostfile",
            "I_MPI_HYDRA_BOOTSTRAP": "rsh",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": "/etc/mpi/kubexec.sh",
        },
    ),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_the_environment_of_a_launcher(name):
    fields, wanted = ENVIRONMENTS[name]
    assert variables(job(**fields), "Launcher") == wanted


def test_the_environment_of_workers():
    assert variables(job(), "Worker") == {"K_MPI_JOB_ROLE": "worker"}
    assert variables(job(V1), "Worker") == {}


HOSTFILES = {
    "by ssh": ({"slotsPerWorker": 2}, "j-worker-0.j.ns.svc slots=2\nj-worker-1.j.ns.svc slots=2\n"),
    "Intel": ({"mpiImplementation": "Intel"}, "j-worker-0.j.ns.svc:1\nj-worker-1.j.ns.svc:1\n"),
    "the launcher first": (
        {"runLauncherAsWorker": True, "workers": 1},
        "j-launcher.j.ns.svc slots=1\nj-worker-0.j.ns.svc slots=1\n",
    ),
    "v1": ({"version": V1}, "j-worker-0 slots=1\nj-worker-1 slots=1\n"),
    "v1 with a launcher that works": (
        {
            "version": V1,
            "workers": 1,
            "launcher": {"resources": {"limits": {"nvidia.com/gpu": 1}}},
        },
        "j-launcher slots=1\nj-worker-0 slots=1\n",
    ),
}


@pytest.mark.parametrize("name", HOSTFILES)
def test_the_host_file(name):
    fields, wanted = HOSTFILES[name]
    parsed = job(**fields)
    assert documents(parsed, Observed())["ConfigMap"]["data"]["hostfile"] == wanted


SCRIPTS = {
    "nobody runs": (V2BETA1, {}, "#!/bin/sh\n"),
    "not all run, and nobody reads yet": (V2BETA1, {"worker": "Running Pending"}, "#!/bin/sh\n"),
    "all run": (
        V2BETA1,
        {"worker": "Running Running"},
        "#!/bin/sh\necho j-worker-0.j.ns.svc\necho j-worker-1.j.ns.svc\n",
    ),
    "one is lost while the launcher runs": (
        V2BETA1,
        {"launcher": "Running", "worker": "Failed Running"},
        "#!/bin/sh\necho j-worker-1.j.ns.svc\n",
    ),
    "v1": (V1, {"worker": "Running Running"}, "#!/bin/sh\necho j-worker-0:1\necho j-worker-1:1"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_discover_hosts(name):
    version, phases, wanted = SCRIPTS[name]
    parsed = job(version)
    found = documents(parsed, pods(parsed, **phases))["ConfigMap"]["data"]
    assert found["discover_hosts.sh"] == wanted


def test_names_and_mounts_by_ssh():
    parsed = job()
    launcher, worker = template(parsed, "Launcher"), template(parsed, "Worker", 1)
    assert parsed.pod_name(parsed.role("Launcher"), 0) == "j-launcher"
    assert (worker["spec"]["hostname"], worker["spec"]["subdomain"]) == ("j-worker-1", "j")
    assert worker["spec"]["dnsConfig"]["searches"] == ["j.ns.svc.cluster.local"]
    assert main(worker)["command"] == ["/usr/sbin/sshd", "-De"]
    places = {one["name"]: one["mountPath"] for one in main(launcher)["volumeMounts"]}
    assert places == {"ssh-auth": "/root/.ssh", "mpi-job-config": "/etc/mpi"}
    (keys,) = (v["secret"] for v in worker["spec"]["volumes"])
    assert (keys["secretName"], keys["defaultMode"]) == ("j-ssh", 0o600)
    elsewhere = template(job(sshAuthMountPath="/home/m/.ssh"), "Worker")
    assert "defaultMode" not in elsewhere["spec"]["volumes"][0]["secret"]
    assert main(elsewhere)["volumeMounts"][0]["mountPath"] == "/home/m/.ssh"


def test_labels():
    prefix = "training.kubeflow.org"
    by_ssh = template(job(), "Worker", 1)["metadata"]["labels"]
    assert by_ssh[f"{prefix}/operator-name"] == "mpi-operator"
    assert by_ssh[f"{prefix}/job-role"] == "worker"
    assert by_ssh[f"{prefix}/replica-index"] == "1"
    assert template(job(), "Launcher")["metadata"]["labels"][f"{prefix}/job-role"] == "launcher"
    by_exec = template(job(V1), "Launcher")["metadata"]["labels"]
    assert by_exec[f"{prefix}/operator-name"] == "mpijob-controller"
    assert by_exec[f"{prefix}/job-role"] == "master"
    assert f"{prefix}/job-role" not in template(job(V1), "Worker")["metadata"]["labels"]


def test_what_v1_makes_beside_pods():
    parsed = job(V1, mainContainer="train")
    found = documents(parsed, Observed())
    assert set(found) == {"ConfigMap", "ServiceAccount", "Role", "RoleBinding"}
    assert found["ConfigMap"]["data"]["kubexec.sh"].endswith(
        '/opt/kube/kubectl exec ${POD_NAME} --container train -- /bin/sh -c "$*"'
    )
    entering = found["Role"]["rules"][1]
    assert entering["resourceNames"] == ["j-worker-0", "j-worker-1"]
    launcher = template(parsed, "Launcher")["spec"]
    assert launcher["serviceAccountName"] == "j-launcher"
    assert [one["name"] for one in launcher["initContainers"]] == ["kubectl-delivery"]
    worker = main(template(parsed, "Worker"))
    assert (worker["command"], worker["args"]) == (["sleep"], ["365d"])


def test_v1_gives_rights_over_its_own_workers_and_to_its_own_account_alone():
    """A rule that names no pod means every pod; another account may be anybody's."""
    rules = documents(job(V1, workers=0), Observed())["Role"]["rules"]
    assert [one["resources"] for one in rules] == [["pods"]]
    launcher, worker = job(V1).roles
    template = {"spec": launcher.template["spec"] | {"serviceAccountName": "prod-deployer"}}
    theirs = replace(job(V1), roles=(replace(launcher, template=template), worker))
    found = documents(theirs, Observed())
    assert "prod-deployer" not in str(found)
    assert set(found) == {"ConfigMap", "Role"}


def test_what_v2beta1_makes_beside_pods():
    found = documents(job(), Observed())
    assert set(found) == {"Service", "Secret", "ConfigMap"}
    assert found["Secret"]["metadata"]["name"] == "j-ssh"
    assert found["Service"]["spec"]["clusterIP"] == "None"


def test_defaults_of_each_version():
    policies = {v: [role.restart_policy for role in job(v).roles] for v in (V1, V2BETA1)}
    assert policies == {V1: ["Never", "Never"], V2BETA1: ["OnFailure", "Never"]}


def roles_of(parsed: TrainingJob) -> tuple[int, dict[str, int]]:
    """Return minMember, and the least number of pods of each role."""
    group = reconcile(parsed, Observed(), CLOCK).put_group["spec"]
    return group["minMember"], {role["name"]: role["minCount"] for role in group["roles"]}


def test_a_launcher_that_waits_is_no_part_of_the_gang():
    waiting = job(launcherCreationPolicy="WaitForWorkersReady")
    assert roles_of(job()) == (3, {"Launcher": 1, "Worker": 2})
    assert roles_of(waiting) == (2, {"Worker": 2})
    for ready, wanted in ((False, []), (True, ["j-launcher"])):
        seen = pods(waiting, ready=ready, worker="Running Running")
        made = reconcile(waiting, seen, CLOCK).create_pods
        assert [pod["metadata"]["name"] for pod in made] == wanted


def test_a_group_knows_the_launchers_name():
    group = reconcile(job(), Observed(), CLOCK).put_group["spec"]
    assert [role.get("podName") for role in group["roles"]] == ["j-launcher", None]


ENDS = {
    "all run": (V2BETA1, {"launcher": "Running", "worker": "Running Running"}, "Running"),
    "a worker is missing": (V2BETA1, {"launcher": "Running", "worker": "Running"}, "Created"),
    "the launcher ends": (
        V2BETA1,
        {"launcher": "Succeeded", "worker": "Running Running"},
        "Succeeded",
    ),
    "the launcher judges a worker's end": (
        V2BETA1,
        {"launcher": "Running", "worker": "Failed Running"},
        "Created",
    ),
    "v1 does not wait for its word": (
        V1,
        {"launcher": "Running", "worker": "Failed Running"},
        "Failed",
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_how_a_job_ends(name):
    version, phases, wanted = ENDS[name]
    parsed = job(version)
    found = reconcile(parsed, pods(parsed, **phases), CLOCK).status["conditions"]
    assert [one["type"] for one in found if one["status"] == "True"][-1] == wanted
    assert found[-1]["reason"] == f"MPIJob{wanted}"


def test_an_evicted_worker_ends_the_job():
    parsed = job()
    seen = pods(parsed, launcher="Running", worker="Failed Running", reason="Evicted")
    assert reconcile(parsed, seen, CLOCK).status["conditions"][-1]["reason"] == "MPIJobEvicted"


def test_workers_are_stopped_as_soon_as_the_launcher_has_ended():
    parsed = job()
    seen = pods(parsed, launcher="Succeeded", worker="Running Running")
    stopped = reconcile(parsed, seen, CLOCK).stop_pods
    assert [pod.name for pod in stopped] == ["j-worker-0", "j-worker-1"]


WRONG = {
    "no launcher": (
        lambda raw: raw["spec"]["mpiReplicaSpecs"].pop("Launcher"),
        "spec.mpiReplicaSpecs needs a Launcher",
    ),
    "no container": (
        lambda raw: raw["spec"]["mpiReplicaSpecs"]["Worker"]["template"]["spec"].pop("containers"),
        "spec.mpiReplicaSpecs.Worker.template.spec.containers: there is none",
    ),
    "two launchers": (
        lambda raw: raw["spec"]["mpiReplicaSpecs"]["Launcher"].update(replicas=2),
        "spec.mpiReplicaSpecs.Launcher.replicas is 2; a job has exactly 1 Launcher",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name):
    change, sentence = WRONG[name]
    raw = body()
    change(raw)
    with pytest.raises(InvalidJobError) as error:
        parse(raw, "gangsched", "MPIJob")
    assert str(error.value) == f"MPIJob ns/j: {sentence}"
