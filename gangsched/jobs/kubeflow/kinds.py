"""All kinds of job of the reconcile, by name."""

from gangsched.jobs.kubeflow.framework import Framework
from gangsched.jobs.kubeflow.mpi import MPI
from gangsched.jobs.kubeflow.other_frameworks import Jax, MXNet, Paddle, XGBoost
from gangsched.jobs.kubeflow.pytorch import PyTorch
from gangsched.jobs.kubeflow.tensorflow import TensorFlow

FRAMEWORKS: dict[str, Framework] = {
    framework.kind: framework
    for framework in (PyTorch(), TensorFlow(), MPI(), XGBoost(), Paddle(), Jax(), MXNet())
}
