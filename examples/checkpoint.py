"""Train with DistributedDataParallel, and give way when asked: save, leave, go on later.

When a job is stopped for another its pods get SIGTERM and their grace period. The ranks agree on
the step they stop at (one rank may hear of it earlier than another), rank 0 saves, and the job's
next run goes on from there. CHECKPOINT names a file that outlives the pods.
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

asked = torch.zeros(1)


def give_way(*_: object) -> None:
    """Note that this job shall stop."""
    asked.fill_(1)


def main() -> None:
    """Train, saving and leaving when any rank was asked to."""
    signal.signal(signal.SIGTERM, give_way)
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
        stop = asked.clone()
        dist.all_reduce(stop)  # also what keeps the ranks in step
        if stop.item():
            if rank == 0:
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                fresh = CHECKPOINT.with_suffix(".new")
                torch.save({**state, "step": step + 1}, fresh)
                fresh.rename(CHECKPOINT)  # whole or not at all
                print(f"saved at step {step + 1}", flush=True)
            break
        signal.sigtimedwait([], PAUSE_S)
    dist.monitored_barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
