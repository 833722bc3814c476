"""Train a small network on scikit-learn's digits with DistributedDataParallel, and print its loss.

The process group is created from the variables of a PyTorchJob: MASTER_ADDR, MASTER_PORT, RANK and
WORLD_SIZE. Every rank trains on its own share of the data, on its pod's GPU with BACKEND=nccl, else
on the CPU. (The digits are read from the file of scikit-learn: importing the package takes longer
than the training.)
"""
# ruff: noqa: E402 -- the garbage collector takes a third of the time of importing torch, stops ranks
# at different steps, so that the others wait, and takes a second at the exit.

import atexit
import gc

gc.disable()
atexit.register(gc.freeze)

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS = 8


def digits() -> TensorDataset:
    """Return 1,797 pictures of 8 x 8 pixels and the digit each shows."""
    package = find_spec("sklearn")
    if package is None or package.origin is None:
        raise SystemExit("scikit-learn is not installed: its digits are the training data")
    table = np.loadtxt(
        Path(package.origin).parent / "datasets/data/digits.csv.gz", delimiter=",", dtype=np.float32
    )
    features = torch.from_numpy(table[:, :-1] / 16)
    return TensorDataset(features, torch.from_numpy(table[:, -1].astype(np.int64)))


def main() -> None:
    """Train for a few epochs; rank 0 prints."""
    torch.manual_seed(7)
    torch.set_num_threads(1)
    backend = os.environ.get("BACKEND", "gloo")
    dist.init_process_group(backend)
    device = torch.device("cuda" if backend == "nccl" else "cpu")
    rank, world = dist.get_rank(), dist.get_world_size()
    data = digits()
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, seed=7)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    criterion = nn.CrossEntropyLoss()
    if rank == 0:
        name = torch.cuda.get_device_name() if backend == "nccl" else "the CPU"
        print(f"training on {world} ranks by {backend}, rank 0 on {name}", flush=True)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        total = torch.zeros(2, device=device)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs.to(device)), targets.to(device))
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0], device=device)
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch} loss {total[0] / total[1]:.4f}", flush=True)
    # All ranks wait here: a rank that ends early would break the connections of the others.
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
