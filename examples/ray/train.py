"""Train a classifier of handwritten digits with Ray Train: a process on each worker of the cluster.

The program runs on the head of the cluster. Ray starts `train` on the workers, which form the
process group of torch.
"""

import argparse
import tempfile
from pathlib import Path

import ray.train
import torch
from ray.train import Checkpoint, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model
from sklearn.datasets import load_digits


def digits(rank: int, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return this worker's part of the images and their digits."""
    images, labels = load_digits(return_X_y=True)
    return (
        torch.tensor(images[rank::size] / 16, dtype=torch.float32),
        torch.tensor(labels[rank::size], dtype=torch.long),
    )


def train(config: dict) -> None:
    """Train on one worker; report the loss and a checkpoint of each epoch."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    context = ray.train.get_context()
    rank, size = context.get_world_rank(), context.get_world_size()
    images, labels = digits(rank, size)
    layers = (torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    model = prepare_model(torch.nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(config["epochs"]):
        total = 0.0
        parts = list(zip(images.split(32), labels.split(32), strict=True))
        for batch, wanted in parts:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(batch), wanted)
            loss.backward()
            optimizer.step()
            total += loss.item()
        mean = total / len(parts)
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if rank == 0:
                print(f"epoch {epoch} of {size} workers: loss {mean:.3f}", flush=True)
                torch.save(model.state_dict(), Path(folder) / "model.pt")
                saved = Checkpoint.from_directory(folder)
            ray.train.report({"loss": mean, "epoch": epoch}, checkpoint=saved)


def main() -> None:
    """Train on as many workers as the arguments say, and print the last loss."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    given = parser.parse_args()
    trainer = TorchTrainer(
        train,
        train_loop_config={"epochs": given.epochs},
        scaling_config=ScalingConfig(num_workers=given.workers),
        run_config=ray.train.RunConfig(storage_path="/results", name="digits"),
    )
    result = trainer.fit()
    print(f"done: loss {result.metrics['loss']:.3f}", flush=True)


if __name__ == "__main__":
    main()
