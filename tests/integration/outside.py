"""A pytest plugin for the tests of the kubeflow-training SDK that changes three of its habits.

It takes a machine with a pod's secrets for a pod, it looks at a job every 15 seconds only, and it
waits no longer on a slow machine.
"""

import os.path

_isdir = os.path.isdir
os.path.isdir = lambda path: "secrets/kubernetes.io" not in str(path) and _isdir(path)

from kubeflow.training import TrainingClient  # noqa: E402 -- it asks where it runs when imported
from waiting import patience_s  # noqa: E402

_wait = TrainingClient.wait_for_job_conditions


def _patiently(self, *given, wait_timeout=600, **more):
    more |= {"wait_timeout": patience_s(wait_timeout), "polling_interval": 1}
    return _wait(self, *given, **more)


TrainingClient.wait_for_job_conditions = _patiently
