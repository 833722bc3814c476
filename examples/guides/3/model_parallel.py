"""A model in two halves on two GPUs; a batch goes through in eight micro-batches.

torch.distributed.pipeline.sync.Pipe is no longer part of PyTorch, so the halves are called by hand.
"""

import torch
from torch import nn

has_two = torch.cuda.device_count() >= 2
first, second = ("cuda:0", "cuda:1") if has_two else ("cpu", "cpu")
front = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU()).to(first)
back = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 100)).to(second)
optimizer = torch.optim.SGD([*front.parameters(), *back.parameters()], lr=0.1)
torch.manual_seed(0)
inputs, labels = torch.randn(64, 1024), torch.randint(0, 100, (64,))
for step in range(5):
    optimizer.zero_grad()
    parts = [back(front(part.to(first)).to(second)) for part in inputs.chunk(8)]
    loss = nn.functional.cross_entropy(torch.cat(parts), labels.to(second))
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.4f}")
print(f"halves on {first} and {second}")
