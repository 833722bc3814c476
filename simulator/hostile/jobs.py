"""Jobs and searches of a hostile tenant, which our controllers read."""

import random
from collections.abc import Callable

from simulator.hostile.templates import ABSURD, GPU, LARGE, Json, count, pod_spec, text

FRAMEWORKS = {
    "PyTorchJob": ("pytorchReplicaSpecs", ("Master", "Worker"), "pytorch"),
    "MPIJob": ("mpiReplicaSpecs", ("Launcher", "Worker"), "mpi"),
    "TFJob": ("tfReplicaSpecs", ("Chief", "Worker"), "tensorflow"),
    "XGBoostJob": ("xgbReplicaSpecs", ("Master", "Worker"), "xgboost"),
}
VERSIONS = {
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
    "Experiment": "kubeflow.org/v1beta1",
    "Trial": "kubeflow.org/v1beta1",
    **dict.fromkeys(FRAMEWORKS, "kubeflow.org/v1"),
}
KINDS = tuple(VERSIONS)

Metadata = Callable[[random.Random, str, int], Json]
Maker = Callable[[random.Random, str, int], list[Json]]

CONDITIONS = (
    'status.conditions.#(type=="Complete")#|#(status=="True")#',
    "status.[@this].#(failed>=1)",
    "|".join(["[@this,@this]"] * 18) + "|@tostr",
    "status" + ".#(a" * 200,
    "@reverse:" + "{" * 500,
    "a." * 499,
)
FILTERS = (r"([\w|-]+)=(\d+)", r"(a)(?:a*(b))?", "((((a+)+)+)+)(b)", "(x)" * 300, r"(\w{1000})(a)")
PATTERNS = ("^([a-z ]+)+#$", "limit", "(a|a)*b", "(" * 50 + ")" * 50, "[a-z]" * 1_000)
LOGS = ("loss=0.5\n", "a" * 160_000, "\n" * 2**20, "a=1 " * 2**17, "loss=" + "9" * 100_000)
MESSAGE = "Job has reached the specified backoff limit"


def maker(kind: str, metadata: Metadata) -> Maker:
    """Return what makes objects of a kind; `metadata` makes that of every object."""

    def make(rng: random.Random, name: str, scale: int) -> list[Json]:
        spec = _SPECS.get(kind, _framework(kind))(rng, scale)
        head = {"apiVersion": VERSIONS[kind], "kind": kind}
        return [head | {"metadata": metadata(rng, name[:20], min(scale, LARGE)), "spec": spec}]

    return make


def _pods(rng: random.Random, scale: int, container: str = "c0") -> Json:
    spec = pod_spec(rng, min(scale, LARGE))
    spec["containers"][0]["name"] = container
    if rng.random() < 0.2:
        spec["serviceAccountName"] = "another-user"
    return {"spec": spec}


def _framework(kind: str) -> Callable[[random.Random, int], Json]:
    field, roles, container = FRAMEWORKS.get(kind, ("", (), ""))

    def spec(rng: random.Random, scale: int) -> Json:
        some = rng.choice((roles, roles[:1], roles[1:]))
        # Their reconcile is quadratic in pods, which cost nothing here because they never start.
        most = (4, 40, 100_000)[scale]
        replicas = {
            role: {
                "replicas": min(count(rng, scale), most) if role == "Worker" else 1,
                "restartPolicy": rng.choice(("Never", "ExitCode", "Always")),
                "template": _pods(rng, scale, container),
            }
            for role in some
        }
        policy = {
            "backoffLimit": rng.choice((0, 2**31 - 1)),
            "cleanPodPolicy": rng.choice(("All", "None")),
            "schedulingPolicy": {
                "minAvailable": rng.choice((1, 100_000)),
                "queue": rng.choice(("hostile", "victim", "nowhere")),
                "scheduleTimeoutSeconds": rng.choice((1, 86_400)),
            },
        }
        return {field: replicas, "runPolicy": policy}

    return spec


def _jobset(rng: random.Random, scale: int) -> Json:
    number = rng.choice((1, 2)) if scale < LARGE else rng.choice((1, 8, 64))
    most = (3, 30, 100_000)[scale]
    replicated = []
    for index in range(number):
        job = {
            "completions": min(count(rng, scale), most),
            "parallelism": min(count(rng, scale), most),
            "template": _pods(rng, scale if number < 8 else 0),
        }
        replicas = rng.choice((1, 2, min(count(rng, scale), most)))
        replicated.append({"name": f"j{index}", "replicas": replicas, "template": {"spec": job}})
    rules = [
        {
            "name": f"rule{index}",
            "action": rng.choice(("FailJobSet", "RestartJobSet")),
            "onJobFailureMessagePatterns": [rng.choice(PATTERNS) for _ in range(3)],
        }
        for index in range(rng.choice((0, 1, 20)))
    ]
    return {
        "replicatedJobs": replicated,
        "failurePolicy": {"maxRestarts": rng.choice((0, 2**31 - 1)), "rules": rules},
    }


def _trainjob(rng: random.Random, scale: int) -> Json:
    trainer = {
        "numNodes": count(rng, scale),
        "resourcesPerNode": {"limits": {GPU: rng.choice(("1", "9223372036854775807"))}},
        "args": [text(rng, scale)],
    }
    names = ("torch-distributed", "deepspeed-distributed", "nowhere")
    return {"runtimeRef": {"name": rng.choice(names)}, "trainer": trainer}


def _trial_job(rng: random.Random, scale: int, argument: str) -> Json:
    spec = {"template": _pods(rng, min(scale, LARGE)), "x": [argument]}
    return {"apiVersion": "batch/v1", "kind": "Job", "spec": spec}


def _experiment(rng: random.Random, scale: int) -> Json:
    number = rng.choice((1, 2, 3)) if scale < ABSURD else rng.choice((3, 200))
    parameters = [
        {
            "name": f"p{index}",
            "parameterType": rng.choice(("double", "int")),
            "feasibleSpace": {"min": "0", "max": rng.choice(("1", "1000000000"))},
        }
        for index in range(number)
    ]
    setting = rng.choice(("n_ei_candidates", "n_startup_trials", "random_state", "base_estimator"))
    settings = [{"name": setting, "value": rng.choice(("1", "100000", "4294967295", "x"))}]
    argument = "${trialParameters.at}"
    if rng.random() < 0.3:
        argument += "${trialSpec." * (2, 500, 13_000)[scale]
    return {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "algorithm": {
            "algorithmName": rng.choice(("random", "tpe", "grid", "sobol", "bayesianoptimization")),
            "algorithmSettings": settings if rng.random() < 0.5 else [],
        },
        "parallelTrialCount": count(rng, scale),
        "parameters": parameters,
        "trialTemplate": {
            "trialParameters": [{"name": "at", "reference": "p0"}],
            "trialSpec": _trial_job(rng, scale, argument),
            "successCondition": rng.choice(CONDITIONS),
        },
    }


def _trial(rng: random.Random, scale: int) -> Json:
    filters = [rng.choice(FILTERS) for _ in range(rng.choice((1, 1, 5)))]
    return {
        "objective": {"type": "minimize", "objectiveMetricName": "loss"},
        "parameterAssignments": [{"name": "p0", "value": text(rng, min(scale, LARGE))}],
        "runSpec": _trial_job(rng, scale, "x"),
        "successCondition": rng.choice(CONDITIONS),
        "failureCondition": rng.choice(CONDITIONS),
        "metricsCollector": {"source": {"filter": {"metricsFormat": filters}}},
    }


_SPECS = {
    "JobSet": _jobset,
    "TrainJob": _trainjob,
    "Experiment": _experiment,
    "Trial": _trial,
}
