"""The contract of PyTorchJob kubeflow.org/v1: names, labels, environment, success.

Source: kubeflow/training-operator release-1.9, pkg/controller.v1/pytorch. Beyond it, worker-only
jobs get the master's variables too (their rank 0 is worker 0), and plain `python` finds
LOCAL_RANK and LOCAL_WORLD_SIZE, which torchrun sets anew for its children.
"""

import copy

from gangsched.core.jobs.model import Job, JobRole, Json

CONTAINER = "pytorch"
PORT_NAME = "pytorchjob-port"
PORT = 23456
OPERATOR = "pytorchjob-controller"

_PREFIX = "training.kubeflow.org"


def labels(job: Job, role: JobRole, index: int) -> dict[str, str]:
    """Return the labels of a pod and its Service, those of operators before 1.7 included."""
    kind = role.type.lower()
    found = {
        f"{_PREFIX}/operator-name": OPERATOR,
        f"{_PREFIX}/job-name": job.name,
        f"{_PREFIX}/replica-type": kind,
        f"{_PREFIX}/replica-index": str(index),
        "job-name": job.name,
        "replica-type": kind,
        "replica-index": str(index),
        "group-name": "kubeflow.org",
    }
    if role.type == "Master":
        found[f"{_PREFIX}/job-role"] = "master"
    return found


def selector(job: Job, role: JobRole) -> str:
    """Return the label selector of a role's pods, as the scale subresource serves it."""
    return (
        f"{_PREFIX}/job-name={job.name},{_PREFIX}/operator-name={OPERATOR},"
        f"{_PREFIX}/replica-type={role.type.lower()}"
    )


def rank(job: Job, role: JobRole, index: int) -> int:
    """Return a pod's node rank: the master is 0, workers follow."""
    return index + 1 if role.type != "Master" and job.role("Master") is not None else index


def master(job: Job) -> tuple[str, int]:
    """Return the address and port of rank 0."""
    role = job.role("Master") or job.roles[0]
    return job.pod_name(role, 0), _port(role.template)


def environment(job: Job, role: JobRole, index: int) -> dict[str, str]:
    """Return the variables every container of a pod gets."""
    address, port = master(job)
    processes = job.nproc_per_node
    count = int(processes) if processes is not None and processes.isdigit() else 1
    node_rank = str(rank(job, role, index))
    found = {
        "PYTHONUNBUFFERED": "1",
        "MASTER_ADDR": address,
        "MASTER_PORT": str(port),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": str(port),
        "WORLD_SIZE": str(job.total * count),
        "RANK": node_rank,
        "PET_NODE_RANK": node_rank,
        "PET_NNODES": str(job.total),
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "1",
    }
    if processes is not None:
        found["PET_NPROC_PER_NODE"] = processes
    if job.elastic is not None:
        found["PET_NNODES"] = f"{job.elastic.minimum}:{job.elastic.maximum}"
        if not _names_its_master(role.template):
            found |= job.elastic.environment
    return found


def pod_template(job: Job, role: JobRole, index: int) -> Json:
    """Return a pod's template with the contract's labels, ports, environment and policy."""
    template = copy.deepcopy(role.template)
    metadata = template.setdefault("metadata", {})
    metadata["labels"] = (metadata.get("labels") or {}) | labels(job, role, index)
    spec = template["spec"]
    never = role.restart_policy == "ExitCode"
    spec["restartPolicy"] = "Never" if never else role.restart_policy
    spec["schedulerName"] = spec.get("schedulerName") or job.scheduler
    variables = environment(job, role, index)
    for container in (*spec.get("initContainers", []), *spec["containers"]):
        own = {variable["name"] for variable in container.get("env") or []}
        # First, so that the user's own variables may refer to them, and win over them.
        container["env"] = [
            {"name": name, "value": value} for name, value in variables.items() if name not in own
        ] + (container.get("env") or [])
    main = main_container(spec)
    ports = main.setdefault("ports", [])
    if not any(port.get("name") == PORT_NAME for port in ports):
        ports.append({"name": PORT_NAME, "containerPort": PORT})
    return template


def service(job: Job, role: JobRole, index: int) -> Json:
    """Return the headless Service that gives a pod its name, also before it is ready."""
    found = labels(job, role, index)
    ports = main_container(pod_template(job, role, index)["spec"])["ports"]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": job.pod_name(role, index), "labels": found},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {
                key: value for key, value in found.items() if key.startswith(f"{_PREFIX}/")
            },
            "ports": [
                {
                    "name": port["name"],
                    "port": port["containerPort"],
                    "targetPort": port["containerPort"],
                }
                for port in ports
                if port.get("name") and port.get("protocol", "TCP") == "TCP"
            ],
        },
    }


def main_container(spec: Json) -> Json:
    """Return the container named pytorch."""
    found: Json = next(c for c in spec["containers"] if c["name"] == CONTAINER)
    return found


def _port(template: Json) -> int:
    for port in main_container(template["spec"]).get("ports") or []:
        if port.get("name") == PORT_NAME:
            return int(port["containerPort"])
    return PORT


def _names_its_master(template: Json) -> bool:
    """A command with a static rendezvous must not be overruled by an elastic default."""
    container = main_container(template["spec"])
    words = [*(container.get("command") or []), *(container.get("args") or [])]
    return any("--master_addr" in word or "--master-addr" in word for word in words)
