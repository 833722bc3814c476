"""MPIJob v2beta1: the launcher reaches its workers by ssh, with keys of the job.

Source: kubeflow/mpi-operator v0.6, pkg/controller/mpi_job_controller.go.
"""

from gangsched.jobs.common.containers import mount
from gangsched.jobs.common.model import ROOT_SSH, JobRole, Json, TrainingJob
from gangsched.jobs.kubeflow.framework import PREFIX, Variables

CONFIG, CONFIG_MOUNT = "mpi-job-config", "/etc/mpi"
"""Volume and mount path of the host file and the scripts, in both versions."""

_SSH_VOLUME = "ssh-auth"
_PATIENCE = "-o ConnectionAttempts=10"
_HOSTFILE = f"{CONFIG_MOUNT}/hostfile"

_IMPLEMENTATIONS = {
    "OpenMPI": (
        {
            "OMPI_MCA_orte_keep_fqdn_hostnames": "true",
            "OMPI_MCA_orte_default_hostfile": _HOSTFILE,
            "OMPI_MCA_plm_rsh_args": _PATIENCE,
        },
        "OMPI_MCA_orte_set_default_slots",
    ),
    "Intel": (
        {
            "I_MPI_HYDRA_HOST_FILE": _HOSTFILE,
            "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": _PATIENCE,
        },
        "I_MPI_PERHOST",
    ),
    "MPICH": ({"HYDRA_HOST_FILE": _HOSTFILE, "HYDRA_LAUNCH_EXTRA_ARGS": _PATIENCE}, ""),
}
"""By implementation: its variables, and the variable for the processes of a host."""


class Ssh:
    """Reaches workers by one Service, the keys of a Secret, and the hosts of a ConfigMap."""

    def variables(self, job: TrainingJob, role: JobRole) -> Variables:
        """Return the variables of the launcher's mpirun."""
        variables = {"K_MPI_JOB_ROLE": role.type.lower()}
        if role.type == "Launcher":
            of_implementation, slots = _IMPLEMENTATIONS[job.mpi.implementation]
            variables |= of_implementation
            if slots:
                variables[slots] = str(job.mpi.slots)
        return variables

    def customize(self, job: TrainingJob, role: JobRole, index: int, spec: Json) -> None:
        """Name the pod, and mount keys and hosts."""
        spec["hostname"] = job.pod_name(role, index)
        spec["subdomain"] = job.name
        if spec.get("hostNetwork"):
            spec["dnsPolicy"] = "ClusterFirstWithHostNet"
        main = spec["containers"][0]
        keys: Json = {
            "secretName": f"{job.name}-ssh",
            "items": [
                {"key": "ssh-privatekey", "path": "id_rsa"},
                {"key": "ssh-publickey", "path": "id_rsa.pub"},
                {"key": "ssh-publickey", "path": "authorized_keys"},
            ],
        }
        if job.mpi.ssh_mount == ROOT_SSH:
            keys["defaultMode"] = 0o600
        mount(spec, main, {"name": _SSH_VOLUME, "secret": keys}, job.mpi.ssh_mount)
        if role.type == "Launcher":
            items = [("hostfile", 0o444), ("discover_hosts.sh", 0o555)]
            mount(spec, main, config_volume(job, items), CONFIG_MOUNT)
            return
        if not main.get("command") and not main.get("args"):
            main["command"] = ["/usr/sbin/sshd", "-De"]
        # Intel MPI and MPICH call the launcher by its bare name.
        dns = spec.setdefault("dnsConfig", {})
        search = f"{job.name}.{job.namespace}.svc.cluster.local"
        dns["searches"] = [*(dns.get("searches") or []), search]

    def documents(self, job: TrainingJob, running: list[str]) -> list[Json]:
        """Return the Service, the keys, and the ConfigMap of hosts."""
        slots = job.mpi.slots
        form = "{} slots={}\n" if job.mpi.implementation == "OpenMPI" else "{}:{}\n"
        hosts = self._hosts(job, [job.pod_name(w, i) for w, i in _workers(job)])
        script = "".join(f"echo {host}\n" for host in self._hosts(job, running))
        data = {
            "hostfile": "".join(form.format(host, slots) for host in hosts),
            "discover_hosts.sh": f"#!/bin/sh\n{script}",
        }
        service = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": _shared(job),
        }
        return [
            part(job, "v1", "Service", job.name) | {"spec": service},
            part(job, "v1", "Secret", f"{job.name}-ssh") | {"type": "kubernetes.io/ssh-auth"},
            part(job, "v1", "ConfigMap", f"{job.name}-config") | {"data": data},
        ]

    def _hosts(self, job: TrainingJob, workers: list[str]) -> list[str]:
        launcher = job.role("Launcher")
        first = [job.pod_name(launcher, 0)] if launcher and job.mpi.launcher_works else []
        return [f"{name}.{job.name}.{job.namespace}.svc" for name in (*first, *workers)]


SSH = Ssh()


def labels(job: TrainingJob, role: JobRole, index: int) -> dict[str, str]:
    """Return mpi-operator's labels, and the replica type, which gangsched's controller reads."""
    kind = role.type.lower()
    all_pods = _shared(job) | {f"{PREFIX}/job-role": kind, f"{PREFIX}/replica-type": kind}
    return all_pods | ({f"{PREFIX}/replica-index": str(index)} if role.type == "Worker" else {})


def selector(job: TrainingJob, role: JobRole) -> str:
    """Return the label selector of a role's pods."""
    selected = _shared(job) | {f"{PREFIX}/job-role": role.type.lower()}
    return ",".join(f"{key}={value}" for key, value in selected.items())


def _shared(job: TrainingJob) -> dict[str, str]:
    return {f"{PREFIX}/operator-name": "mpi-operator", f"{PREFIX}/job-name": job.name}


def _workers(job: TrainingJob) -> list[tuple[JobRole, int]]:
    worker = job.role("Worker")
    return [(worker, index) for index in range(worker.replicas)] if worker else []


def config_volume(job: TrainingJob, items: list[tuple[str, int]]) -> Json:
    """Return the volume of the job's ConfigMap, with the mode of each file."""
    files = [{"key": name, "path": name, "mode": mode} for name, mode in items]
    return {"name": CONFIG, "configMap": {"name": f"{job.name}-config", "items": files}}


def part(job: TrainingJob, api_version: str, kind: str, name: str) -> Json:
    """Return the head of an object that belongs to a job."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"name": name, "labels": {"app": job.name}},
    }
