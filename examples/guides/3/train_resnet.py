"""Data parallelism: each rank learns from its part of the data; rank 0 saves each epoch."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

has_gpu = torch.cuda.is_available()
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("nccl" if has_gpu else "gloo", rank=rank, world_size=world_size)
if has_gpu:
    torch.cuda.set_device(rank % torch.cuda.device_count())
device = "cuda" if has_gpu else "cpu"

layers = [nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten()]
model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(32, 10)).to(device))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001 * world_size)
torch.manual_seed(0)
dataset = TensorDataset(torch.rand(256, 1, 28, 28), torch.randint(0, 10, (256,)))
sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True)
loader = DataLoader(dataset, batch_size=32, sampler=sampler)
for epoch in range(3):
    sampler.set_epoch(epoch)
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        state = {
            "epoch": epoch,
            "model_state_dict": model.module.state_dict(),
            "optimizer_state_dict": optimizer.state_dict(),
        }
        torch.save(state, f"/data/checkpoint_epoch_{epoch}.pt")
        print(f"epoch {epoch} loss {loss.item():.4f}")
if rank == 0:
    print("saved", *sorted(path.name for path in Path("/data").glob("*.pt")))
dist.barrier()
dist.destroy_process_group()
