"""Two tasks that need a worker each, then none: the cluster grows, and shrinks again."""

import time

import ray

WITHIN_S = 240.0


@ray.remote(num_cpus=1)
def task() -> str:
    """Return the worker that runs this, which is busy for a while."""
    time.sleep(10)
    return ray.get_runtime_context().get_node_id()


def workers() -> int:
    """Return how many workers the cluster has."""
    return sum(node["Alive"] and node["Resources"].get("CPU", 0) > 0 for node in ray.nodes())


ray.init()
used = set(ray.get([task.remote() for _ in range(2)]))
print(f"ran on {len(used)} workers", flush=True)
end_s = time.monotonic() + WITHIN_S
while workers() > 1 and time.monotonic() < end_s:
    time.sleep(1)
print(f"then {workers()} worker", flush=True)
