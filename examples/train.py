"""Train a small network on scikit-learn's digits with DistributedDataParallel, and print its loss.

The process group is made from the environment a PyTorchJob gives: MASTER_ADDR, MASTER_PORT,
RANK and WORLD_SIZE. Every rank sees its own share of the data.
"""

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

EPOCHS = 8


def main() -> None:
    """Train for a few epochs; rank 0 prints."""
    torch.manual_seed(7)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    digits = load_digits()
    features = torch.tensor(digits.data, dtype=torch.float32) / 16
    data = TensorDataset(features, torch.tensor(digits.target))
    sampler = DistributedSampler(data, num_replicas=world, rank=rank, seed=7)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    criterion = nn.CrossEntropyLoss()
    if rank == 0:
        print(f"training on {world} ranks", flush=True)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        total = torch.zeros(2)
        for inputs, targets in loader:
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total += torch.tensor([loss.item(), 1.0])
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch {epoch} loss {total[0] / total[1]:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
