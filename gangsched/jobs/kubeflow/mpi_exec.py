"""MPIJob v1: the launcher reaches its workers by `kubectl exec`, with permissions of the job.

Source: kubeflow/training-operator release-1.9, pkg/controller.v1/mpi/mpijob_controller.go.
"""

from gangsched.jobs.common.containers import mount
from gangsched.jobs.common.model import JobRole, Json, TrainingJob
from gangsched.jobs.kubeflow.framework import Variables
from gangsched.jobs.kubeflow.mpi_ssh import CONFIG_MOUNT, config_volume, part

_KUBECTL, _KUBECTL_MOUNT = "mpi-job-kubectl", "/opt/kube"
_KUBEXEC = f"{CONFIG_MOUNT}/kubexec.sh"
_DELIVERY_IMAGE = "mpioperator/kubectl-delivery:latest"
_RBAC = "rbac.authorization.k8s.io"
_DELIVERY = {"cpu": "100m", "memory": "512Mi", "ephemeral-storage": "5Gi"}


class Exec:
    """Reaches workers by a script that calls kubectl, and a Role that allows it."""

    def variables(self, job: TrainingJob, role: JobRole) -> Variables:
        """Return the variables of the launcher's mpirun, for Open MPI and Intel MPI."""
        del job
        if role.type != "Launcher":
            return {}
        return {
            "OMPI_MCA_plm_rsh_agent": _KUBEXEC,
            "OMPI_MCA_orte_default_hostfile": f"{CONFIG_MOUNT}/hostfile",
            "I_MPI_HYDRA_BOOTSTRAP": "rsh",
            "I_MPI_HYDRA_BOOTSTRAP_EXEC": _KUBEXEC,
        }

    def customize(self, job: TrainingJob, role: JobRole, index: int, spec: Json) -> None:
        """Mount the scripts; give the launcher kubectl and an account."""
        del index
        main = spec["containers"][0]
        if role.type == "Worker":
            if not main.get("command"):
                main["command"], main["args"] = ["sleep"], ["365d"]
            # Open MPI looks for the script's path in every rank.
            mount(spec, main, config_volume(job, [("kubexec.sh", 0o555)]), CONFIG_MOUNT)
            return
        spec.setdefault("serviceAccountName", f"{job.name}-launcher")
        delivery: Json = {
            "name": "kubectl-delivery",
            "image": _DELIVERY_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "env": [
                {"name": "TARGET_DIR", "value": _KUBECTL_MOUNT},
                {"name": "NAMESPACE", "value": job.namespace},
            ],
            "resources": {"requests": dict(_DELIVERY), "limits": dict(_DELIVERY)},
        }
        spec["initContainers"] = [*(spec.get("initContainers") or []), delivery]
        names = ("kubexec.sh", 0o555), ("hostfile", 0o444), ("discover_hosts.sh", 0o555)
        for container in (delivery, main):
            mount(spec, container, {"name": _KUBECTL, "emptyDir": {}}, _KUBECTL_MOUNT)
            mount(spec, container, config_volume(job, list(names)), CONFIG_MOUNT)

    def documents(self, job: TrainingJob, running: list[str]) -> list[Json]:
        """Return the ConfigMap of scripts and hosts, and the launcher's account and permissions."""
        slots, name = job.mpi.slots, f"{job.name}-launcher"
        worker = job.role("Worker")
        workers = [job.pod_name(worker, i) for i in range(worker.replicas)] if worker else []
        first = [name] if job.mpi.launcher_works else []
        entered = f" --container {job.mpi.container}" if job.mpi.container else ""
        data = {
            "hostfile": "".join(f"{host} slots={slots}\n" for host in (*first, *workers)),
            "kubexec.sh": (
                "#!/bin/sh\nset -x\nPOD_NAME=$1\nshift\n"
                f'{_KUBECTL_MOUNT}/kubectl exec ${{POD_NAME}}{entered} -- /bin/sh -c "$*"'
            ),
            "discover_hosts.sh": "\n".join(
                ["#!/bin/sh", *(f"echo {host}:{slots}" for host in (*first, *running))]
            ),
        }
        parts = [part(job, "v1", "ConfigMap", f"{job.name}-config") | {"data": data}]
        launcher = job.role("Launcher")
        own = launcher.template["spec"].get("serviceAccountName") if launcher else None
        if not own:
            parts.append(part(job, "v1", "ServiceAccount", name))
        parts.append(part(job, f"{_RBAC}/v1", "Role", name) | {"rules": _rules(workers)})
        if not own:  # only the account that is created for the job gets permissions
            account = {"kind": "ServiceAccount", "name": name, "namespace": job.namespace}
            role = {"apiGroup": _RBAC, "kind": "Role", "name": name}
            binding = part(job, f"{_RBAC}/v1", "RoleBinding", name)
            parts.append(binding | {"subjects": [account], "roleRef": role})
        return parts


def _rules(workers: list[str]) -> list[Json]:
    """Return the permissions to enter workers; a rule without names would mean every pod."""
    rules: list[Json] = [
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]}
    ]
    if workers:
        rules.append(
            {
                "apiGroups": [""],
                "resources": ["pods/exec"],
                "resourceNames": workers,
                "verbs": ["create"],
            }
        )
    return rules


EXEC = Exec()
