"""Training that saves: rank 0 writes a checkpoint every few epochs, and lists them at its end."""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoint-dir", type=Path, required=True)
parser.add_argument("--save-every", type=int, default=5)
given = parser.parse_args()

dist.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(1, 11):
    inputs = torch.randn(64, 8)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0 and epoch % given.save_every == 0:
        torch.save(model.module.state_dict(), given.checkpoint_dir / f"epoch-{epoch}.pt")
if dist.get_rank() == 0:
    print("saved", *sorted(path.name for path in given.checkpoint_dir.glob("*.pt")))
dist.barrier()
dist.destroy_process_group()
