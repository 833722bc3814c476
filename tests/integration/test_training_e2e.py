"""The end-to-end tests in the wheel of kubeflow-training 1.9.4, unchanged.

Nothing of them is changed: an admission policy of the cluster replaces their images by programs of
this machine, and they are run as their own CI runs them: with either gang scheduler, or without.
"""

import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from waiting import Deadline, output

HERE = Path(__file__).parent
FILES = [
    Path(str(metadata.distribution("kubeflow-training").locate_file(str(path))))
    for path in metadata.files("kubeflow-training") or ()
    if path.name.startswith("test_e2e_")
]
MEET = ["python", str(HERE / "rendezvous.py")]
HOROVOD = "/horovod/examples/pytorch/pytorch_mnist.py"
GANGS = ("volcano", "scheduler-plugins", "none")
SKIPPED = {
    "test_e2e_mpijob.py": None
    if shutil.which("mpirun")
    else "Open MPI is not installed (Debian: openmpi-bin)",
}
"""Files that cannot run here, and why."""

IMAGES = {
    "kubeflow/pytorch-dist-mnist": {"command": MEET},
    "hello-world": {"command": ["echo", "Hello"]},
    "kubeflow-ci/tf-mnist-with-summaries": {"command": MEET, "args": []},
    "kubeflow/xgboost-dist-iris": {"command": MEET},
    "paddlepaddle/paddle": {"command": MEET, "args": []},
    "kubeflow/jaxjob-dist-spmd-mnist": {"command": MEET},
    "horovod/horovod": {"args": ["-np", "1", "--allow-run-as-root", "hostname"]},
}
"""What stands in for the images the tests name: a part of the name, and the container's fields."""


def replacement(namespace: str, number: int, image: str) -> str:
    """Return the policy that replaces an image in a namespace."""
    fields = IMAGES[image]
    # A worker of an MPIJob has its command from the controller: only launchers get the new one.
    only = ' && c.?command.orValue([]) == ["mpirun"]' if image == "horovod/horovod" else ""
    patches = ", ".join(
        f'JSONPatch{{op: "add", path: "/spec/containers/0/{key}", value: {json.dumps(values)}}}'
        for key, values in fields.items()
    )
    name = f"{namespace}-{number}"
    return f"""
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}
    resourceRules:
    - {{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}}
  matchConditions:
  - name: image
    expression: 'object.spec.containers.exists(c, c.image.contains("{image}"){only})'
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[{patches}]'
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}}}
---"""


@pytest.fixture
def homes(laptop):
    """A namespace for each file, with the images replaced in all of them.

    Each file has one of the gang schedulers in turn: test_kinds.py runs every kind without one.
    """
    names = {
        (file, GANGS[number % len(GANGS)]): laptop.new_namespace()
        for number, file in enumerate(FILES)
        if SKIPPED.get(file.name) is None
    }
    text = "".join(
        replacement(name, number, image)
        for name in names.values()
        for number, image in enumerate(IMAGES)
    )
    laptop.kubectl("create", "-f", "-", stdin=text)
    for name in names.values():
        laptop.wait(lambda name=name: _replaced(laptop, name), f"the policies of {name}")
    yield names
    laptop.kubectl("delete", "--ignore-not-found", "--wait=false", "-f", "-", stdin=text)
    laptop.kubectl("delete", "namespace", "--wait=false", *names.values())


def _replaced(laptop, namespace: str) -> bool:
    """Tell whether the API server knows the last policy of a namespace."""
    last = {"name": "c", "image": "horovod/horovod", "command": ["mpirun"]}
    pod = {"metadata": {"name": "probe"}, "spec": {"containers": [last]}}
    made = laptop.core.create_namespaced_pod(namespace, pod, dry_run="All")
    return made.spec.containers[0].args is not None


def test_the_sdks_own_tests(laptop, homes):
    running = {}
    for (file, gang), namespace in homes.items():
        env = os.environ | {
            "KUBECONFIG": str(laptop.plane.kubeconfig),
            "GANG_SCHEDULER_NAME": gang,
            "PYTHONPATH": f"{HERE}{os.pathsep}{HERE.parent}",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "outside", str(file)]
        command += ["-p", "no:cacheprovider", "-c", os.devnull, "--namespace", namespace]
        running[file.name, gang] = subprocess.Popen(
            command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    deadline = Deadline(180)
    try:
        said = {name: output(one, " ".join(name), deadline)[0] for name, one in running.items()}
    finally:
        for one in running.values():
            one.kill()
    bad = {name: said[name][-6000:] for name, one in running.items() if one.returncode}
    assert not bad, "\n".join(f"{name}:\n{text}" for name, text in bad.items())
    assert all(" passed" in text for text in said.values())
