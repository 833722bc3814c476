"""What a user of kubeflow-katib writes: searches by its client, which is not changed.

Runs in the environment of that client (make katib). It prints one JSON object: the answers, and how
often each call of the client ended well, of how many times.
"""

import inspect
import json
import sys
from pathlib import Path

from kubeflow import katib
from kubeflow.katib import KatibClient, models


class CountedClient:
    """The client, with a count of its calls: [ended well, all] by name."""

    def __init__(self, client: KatibClient) -> None:
        self._client, self.calls = client, {}

    def __getattr__(self, name: str):
        call, count = getattr(self._client, name), self.calls.setdefault(name, [0, 0])

        def counted(*arguments, **named):
            count[1] += 1
            answer = call(*arguments, **named)
            answer = list(answer) if inspect.isgenerator(answer) else answer
            count[0] += 1
            return answer

        return counted


def objective(parameters):
    """Train: the code of a trial, which the client sends."""
    x, y = float(parameters["x"]), int(parameters["y"])
    for epoch in range(1, 4):
        print(f"epoch {epoch}")
        print(f"score={(4 - (x - 1) ** 2 - (y - 3) ** 2) * epoch / 3:.6f}")


def tuned(client: CountedClient, metrics_address: str) -> dict:
    """Search by tune(), read everything, delete it."""
    client.tune(
        name="tuned",
        objective=objective,
        parameters={"x": katib.search.double(min=0, max=2), "y": katib.search.int(min=1, max=5)},
        objective_metric_name="score",
        algorithm_name="cmaes",
        algorithm_settings={"random_state": "7"},
        max_trial_count=3,
        parallel_trial_count=3,
        max_failed_trial_count=1,
        retain_trials=True,
        resources_per_trial={"cpu": "100m"},
        base_image="python",
    )
    client.wait_for_experiment_condition("tuned", timeout=300, polling_interval=1)
    trials = client.list_trials("tuned")
    best = client.get_optimal_hyperparameters("tuned")
    suggestion = client.get_suggestion("tuned")
    answers = {
        "created": client.is_experiment_created("tuned"),
        "running": client.is_experiment_running("tuned"),
        "restarting": client.is_experiment_restarting("tuned"),
        "experiment": client.get_experiment("tuned").metadata.name,
        "job_log": client.get_job_logs("tuned", trials[0].metadata.name),
        "succeeded": client.is_experiment_succeeded("tuned"),
        "failed": client.is_experiment_failed("tuned"),
        "conditions": [one.type for one in client.get_experiment_conditions("tuned")],
        "experiments": [one.metadata.name for one in client.list_experiments()],
        "trials": sorted(one.metadata.name for one in trials),
        "trial": client.get_trial(trials[0].metadata.name).metadata.name,
        "details": [
            {
                "name": one["name"],
                "point": {a.name: a.value for a in one["parameter_assignments"]},
                "metrics": {m.name: m.max for m in one["metrics"]},
            }
            for one in client.get_success_trial_details("tuned")
        ],
        "logs": {
            one.metadata.name: [
                [log.metric.name, log.metric.value]
                for log in client.get_trial_metrics(
                    one.metadata.name, db_manager_address=metrics_address, timeout=60
                )
            ]
            for one in trials
        },
        "best": {
            "trial": best.best_trial_name,
            "parameters": {one.name: one.value for one in best.parameter_assignments},
            "metrics": {one.name: one.max for one in best.observation.metrics},
        },
        "suggested": sorted(one.name for one in suggestion.status.suggestions),
        "suggestions": [one.metadata.name for one in client.list_suggestions()],
    }
    client.delete_experiment("tuned")
    return answers


def created(client: CountedClient, path: str) -> dict:
    """Create an Experiment, wait for its end, and raise its budget."""
    experiment = json.loads(Path(path).read_text())
    client.create_experiment(experiment)
    name = experiment["metadata"]["name"]
    client.wait_for_experiment_condition(name, timeout=300, polling_interval=1)
    client.edit_experiment_budget(name, max_trial_count=3)
    return {"trials": len(client.list_trials(name))}


def best(client: CountedClient, name: str) -> dict:
    """Return the best trial of an Experiment that has ended."""
    best = client.get_optimal_hyperparameters(name)
    return {"trials": len(client.list_trials(name)), "best": best.best_trial_name}


def main() -> None:
    """Run the part that is asked for."""
    kubeconfig, namespace, part, *arguments = sys.argv[1:]
    client = CountedClient(KatibClient(config_file=kubeconfig, namespace=namespace))
    assert models.V1beta1Experiment
    answers = {"tuned": tuned, "created": created, "best": best}[part](client, *arguments)
    public = inspect.getmembers(KatibClient, inspect.isfunction)
    answers["calls"] = client.calls
    answers["public"] = [name for name, _ in public if not name.startswith("_")]
    print("ANSWERS " + json.dumps(answers, default=str))


if __name__ == "__main__":
    main()
