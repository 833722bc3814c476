"""Two ranks train with DistributedDataParallel; rank 0 logs the loss of each step to MLflow.

The job's run is in the environment (MLFLOW_RUN_ID), so start_run() opens no other one.
"""

import os

import mlflow
import torch
import torch.distributed as dist

STEPS = int(os.environ.get("STEPS", "20"))


def main() -> None:
    """Train until the last step."""
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    inputs = torch.randn(64, 4)
    targets = inputs.sum(dim=1, keepdim=True)
    is_first = dist.get_rank() == 0
    if is_first:
        mlflow.start_run()
        mlflow.log_param("lr", 0.05)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        if is_first:
            mlflow.log_metric("loss", loss.item(), step=step)
    if is_first:
        mlflow.end_run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
