"""Train a small network on rows of the job's data cache; each rank reads its share.

Each row has a number in the column `id`. After each epoch the ranks add up how often they had each
row: a row that is missing, or that was read twice, ends the job with an error.
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from gangsched.datacache.dataset import CacheDataset

EPOCHS = int(os.environ.get("EPOCHS", "4"))
ROWS = 1797


def check(counts: torch.Tensor, epoch: int) -> None:
    """End with an error unless all ranks together had each row once."""
    own = int(counts.sum())
    print(f"epoch {epoch}: rank {dist.get_rank()} had {own} rows", flush=True)
    dist.all_reduce(counts)
    if not bool((counts == 1).all()):
        missing, twice = int((counts == 0).sum()), int((counts > 1).sum())
        raise SystemExit(f"epoch {epoch}: {missing} rows are missing, {twice} were read again")
    if dist.get_rank() == 0:
        print(f"epoch {epoch}: {len(counts)} rows, each once", flush=True)


def main() -> None:
    """Train for a few epochs; rank 0 prints the loss."""
    torch.manual_seed(7)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    data = CacheDataset(batch_size=32)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    criterion = nn.CrossEntropyLoss()
    for epoch in range(EPOCHS):
        data.set_epoch(epoch)
        counts, total = torch.zeros(ROWS, dtype=torch.int64), torch.zeros(2)
        with model.join():  # a rank may have one batch more than another
            for batch in DataLoader(data, batch_size=None):
                optimizer.zero_grad()
                loss = criterion(model(batch["pixels"]), batch["digit"])
                loss.backward()
                optimizer.step()
                counts[batch["id"]] += 1
                total += torch.tensor([loss.item(), 1.0])
        check(counts, epoch)
        dist.all_reduce(total)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {total[0] / total[1]:.4f}", flush=True)
    dist.monitored_barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
