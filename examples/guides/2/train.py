"""A small ResNet learns from images that the script makes, on all ranks together."""

import os
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Block(nn.Module):
    """Two convolutions beside a shortcut: https://arxiv.org/abs/1512.03385, figure 2."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        layers = [nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Conv2d(channels, channels, 3, padding=1))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return the sum of the layers' output and the images, without negative values."""
        return torch.relu(images + self.layers(images))


has_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if has_gpu else "gloo")
device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if has_gpu else torch.device("cpu")
rank = dist.get_rank()
print("data", *sorted(path.name for path in Path("/data").iterdir()))

stem = [nn.Conv2d(3, 16, 7, stride=4, padding=3), nn.ReLU(), Block(16), Block(16)]
model = nn.Sequential(*stem, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).to(device)
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
torch.manual_seed(0)
dataset = TensorDataset(torch.rand(128, 3, 64, 64), torch.randint(0, 10, (128,)))
sampler = DistributedSampler(dataset)
loader = DataLoader(dataset, batch_size=32, sampler=sampler)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for images, labels in loader:
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if rank == 0:
        print(f"epoch {epoch} loss {loss.item():.4f}")
dist.barrier()
dist.destroy_process_group()
