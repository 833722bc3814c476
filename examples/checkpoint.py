"""Train with DistributedDataParallel; on SIGTERM save a checkpoint and stop, and resume later.

When a job is preempted, its pods get SIGTERM and their grace period. The ranks agree on the step at
which they stop (SIGTERM reaches them at different times), rank 0 saves, and the job's next run
resumes from there. CHECKPOINT names a file that outlives the pods.
"""

import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "200"))
PAUSE_S = float(os.environ.get("PAUSE_S", "0.1"))
CHECKPOINT = Path(os.environ.get("CHECKPOINT", "/checkpoints/last.pt"))

stop_requested = torch.zeros(1)


def request_stop(*_: object) -> None:
    """Record that this job has to stop."""
    stop_requested.fill_(1)


def main() -> None:
    """Train; save and stop when any rank got SIGTERM."""
    signal.signal(signal.SIGTERM, request_stop)
    torch.manual_seed(7)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    features = torch.randn(256, 16)
    targets = features.sum(dim=1, keepdim=True).sin()
    first = 0
    if CHECKPOINT.exists():
        saved = torch.load(CHECKPOINT)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    for step in range(first, STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(features), targets)
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
        stop = stop_requested.clone()
        dist.all_reduce(stop)  # also keeps the ranks at the same step
        if stop.item():
            if rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                draft = CHECKPOINT.with_suffix(".new")
                torch.save({**state, "step": step + 1}, draft)
                draft.rename(CHECKPOINT)  # complete or not at all
                print(f"saved at step {step + 1}", flush=True)
            break
        signal.sigtimedwait([], PAUSE_S)
    dist.monitored_barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
