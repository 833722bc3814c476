"""Every kind of job the reconcile knows, by its name."""

from gangsched.core.jobs.framework import Framework
from gangsched.core.jobs.mpi import MPI
from gangsched.core.jobs.others import Jax, MXNet, Paddle, XGBoost
from gangsched.core.jobs.pytorch import PyTorch
from gangsched.core.jobs.tensorflow import TensorFlow

FRAMEWORKS: dict[str, Framework] = {
    one.kind: one for one in (PyTorch(), TensorFlow(), MPI(), XGBoost(), Paddle(), Jax(), MXNet())
}
