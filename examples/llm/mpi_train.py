"""Data-parallel training where mpirun starts the ranks, and torch exchanges gradients by gloo.

With the package deepspeed, `deepspeed.init_distributed()` reads the same variables.
"""

import os
import socket

import torch
import torch.distributed as dist
from torch import nn

rank, ranks = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
address = f"tcp://{os.environ['MASTER_ADDR']}:29500"
dist.init_process_group("gloo", init_method=address, rank=rank, world_size=ranks)
print(f"rank {rank} of {ranks} on {socket.gethostname()}", flush=True)

torch.manual_seed(0)
model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
draw = torch.Generator().manual_seed(rank)
losses = []
for _ in range(50):
    inputs = torch.randn(64, 8, generator=draw)
    loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
if rank == 0:
    print(f"loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
dist.destroy_process_group()
