"""A pytest plugin for the tests of the kubeflow-training SDK: it changes two habits of it alone.

It takes a machine with a pod's secrets for a pod, and it looks at a job every 15 seconds only.
"""

import functools
import os.path

_isdir = os.path.isdir
os.path.isdir = lambda path: "secrets/kubernetes.io" not in str(path) and _isdir(path)

from kubeflow.training import TrainingClient  # noqa: E402 -- it asks where it runs when imported

TrainingClient.wait_for_job_conditions = functools.partialmethod(
    TrainingClient.wait_for_job_conditions, polling_interval=1
)
