"""Scrape what a ServiceMonitor selects, as a Prometheus of the Prometheus Operator does.

Usage: python scrape.py NAME [PODS]. It reads the ServiceMonitor from the cluster, and waits until
it selects so many pods (default 1), and each has answered through the proxy of the API server.
"""

import json
import subprocess
import sys
import time


def get(*arguments: str) -> dict:
    """Return what `kubectl get` answers."""
    command = ["kubectl", "get", "-o", "json", *arguments]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def targets(monitor: dict) -> list[tuple[str, str]]:
    """Return the pods that a ServiceMonitor selects, each with the path of its metrics."""
    (endpoint,) = monitor["spec"]["endpoints"]
    labels = monitor["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    found = []
    for service in get("services", "-l", selector)["items"]:
        label = f"kubernetes.io/service-name={service['metadata']['name']}"
        for part in get("endpointslices", "-l", label)["items"]:
            ports = [p["port"] for p in part.get("ports") or [] if p["name"] == endpoint["port"]]
            for pod in (one["targetRef"] for one in part.get("endpoints") or []):
                path = f"/api/v1/namespaces/{pod['namespace']}/pods/{pod['name']}"
                metrics = endpoint.get("path", "/metrics")
                found += [(pod["name"], f"{path}:{port}/proxy{metrics}") for port in ports]
    return found


def epoch(path: str) -> str:
    """Return the sample of the epoch, or nothing while a pod does not answer."""
    done = subprocess.run(["kubectl", "get", "--raw", path], capture_output=True, check=False)
    lines = done.stdout.decode().splitlines()
    return next((line for line in lines if line.startswith("training_epoch ")), "")


chosen = get("servicemonitor", sys.argv[1])
wanted = int(sys.argv[2]) if len(sys.argv) > 2 else 1
for _ in range(120):
    pods = dict(targets(chosen))
    samples = {name: epoch(path) for name, path in pods.items()}
    if len(samples) == wanted and all(samples.values()):
        break
    time.sleep(1)
else:
    sys.exit(f"no answer of a pod that ServiceMonitor {sys.argv[1]} selects: {samples}")
for name, sample in sorted(samples.items()):
    print(f"scraped {name}: {sample}")
