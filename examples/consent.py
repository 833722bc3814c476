"""Train with DistributedDataParallel, and save when the scheduler announces a stop.

The job asks for time with the annotation gangsched.io/checkpoint-grace-seconds. Before it is
stopped for another job, or for maintenance, it saves after the present step, reports that, and
waits for its end. If the stop is withdrawn, it goes on. CHECKPOINT outlives the pods.
"""

import os
import signal
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gangsched.torch import StopNotice

STEPS = int(os.environ.get("STEPS", "200"))
PAUSE_S = float(os.environ.get("PAUSE_S", "0.1"))
CHECKPOINT = Path(os.environ.get("CHECKPOINT", "/checkpoints/last.pt"))


def main() -> None:
    """Train; save and stop when that is announced."""
    stop = StopNotice()
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

    def save(step: int) -> None:
        if rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            draft = CHECKPOINT.with_suffix(".new")
            torch.save({**state, "step": step}, draft)
            draft.rename(CHECKPOINT)  # complete or not at all
            print(f"saved at step {step}", flush=True)

    for step in range(first, STEPS):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(features), targets)
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.6f}", flush=True)
        if stop.after_step(lambda step=step: save(step + 1)):
            break
        signal.sigtimedwait([], PAUSE_S)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
