"""Distributed data parallel training: rank 0 prints the loss, and saves the model."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

has_gpu = torch.cuda.is_available()
rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
dist.init_process_group("nccl" if has_gpu else "gloo", address, rank=rank, world_size=world_size)
device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if has_gpu else "cpu"
print(f"rank {rank} of {world_size}")

layers = [nn.Linear(784, 256), nn.ReLU(), nn.Dropout(0.2), nn.Linear(256, 128), nn.ReLU()]
model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(128, 10)).to(device))
optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
torch.manual_seed(0)
dataset = TensorDataset(torch.randn(512, 784), torch.randint(0, 10, (512,)))
sampler = DistributedSampler(dataset, num_replicas=world_size, rank=rank, shuffle=True)
loader = DataLoader(dataset, batch_size=32, sampler=sampler)
for epoch in range(2):
    sampler.set_epoch(epoch)
    total = 0.0
    for inputs, labels in loader:
        loss = nn.functional.cross_entropy(model(inputs.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    if rank == 0:
        print(f"epoch {epoch} average loss {total / len(loader):.4f}")
if rank == 0:
    torch.save(model.module.state_dict(), "/tmp/model.pt")  # noqa: S108 -- the pod's own
    print("model saved")
dist.barrier()
dist.destroy_process_group()
