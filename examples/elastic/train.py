"""Train under torchrun with as many workers as there are: they may leave and come at any time.

torchrun restarts this program whenever the number of workers changes. The loss of every step is
printed before the step is saved: a worker that is stopped in between prints it twice, so the curve
of all runs together has no gap. CHECKPOINT names a file on a volume that all workers share.
"""

import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = int(os.environ.get("STEPS", "300"))
PAUSE_S = float(os.environ.get("PAUSE_S", "0.1"))
CHECKPOINT = Path(os.environ.get("CHECKPOINT", "/checkpoints/last.pt"))


def main() -> None:
    """Train from the last saved step on."""
    torch.manual_seed(7)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    features = torch.randn(240, 16)
    targets = features.sum(dim=1, keepdim=True).sin()
    first = 0
    if CHECKPOINT.exists():
        saved = torch.load(CHECKPOINT)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    for step in range(first, STEPS):
        # Each rank has its share of the same batch: the curve does not depend on their number.
        mine = slice(rank, None, size)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(features[mine]), targets[mine])
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        if rank == 0:
            print(f"step {step} loss {mean.item() / size:.6f} workers {size}", flush=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            fresh = CHECKPOINT.with_suffix(".new")
            torch.save({**state, "step": step + 1}, fresh)
            fresh.rename(CHECKPOINT)  # whole or not at all
        time.sleep(PAUSE_S)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
