"""Two tasks that need a worker each, then none: the cluster grows, and shrinks again.

python scale.py [SECONDS]: how long a task keeps its worker
"""

import sys
import time

import ray

HOLDS_S = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
WITHIN_S = 240.0


@ray.remote(num_cpus=1)
def task(holds_s: float) -> str:
    """Return the worker that runs this, which is busy for a while."""
    time.sleep(holds_s)
    return ray.get_runtime_context().get_node_id()


def workers() -> int:
    """Return how many workers the cluster has."""
    return sum(node["Alive"] and node["Resources"].get("CPU", 0) > 0 for node in ray.nodes())


ray.init()
used = set(ray.get([task.remote(HOLDS_S) for _ in range(2)]))
print(f"ran on {len(used)} workers", flush=True)
end_s = time.monotonic() + WITHIN_S
while workers() > 1 and time.monotonic() < end_s:
    time.sleep(1)
print(f"then {workers()} worker", flush=True)
