"""JAX processes find each other at the coordinator, and sum over all of them."""

import os

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils

jax.distributed.initialize(
    f"{os.environ['COORDINATOR_ADDRESS']}:{os.environ['COORDINATOR_PORT']}",
    int(os.environ["NUM_PROCESSES"]),
    int(os.environ["PROCESS_ID"]),
)
ranks = multihost_utils.process_allgather(jnp.array([jax.process_index()]))
print(
    f"process {jax.process_index()} of {jax.process_count()}: "
    f"the ranks are {sorted(int(rank) for rank in ranks.ravel())}",
    flush=True,
)
jax.distributed.shutdown()
