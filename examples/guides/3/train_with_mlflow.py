"""A training script that tracks its experiment with MLflow: parameters, metrics and a file."""

import os
import tempfile
from pathlib import Path

import mlflow
import torch
from torch import nn

mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI", "http://mlflow-server:5000"))
mlflow.set_experiment("resnet-training")

with mlflow.start_run():
    mlflow.log_params({"learning_rate": 0.001, "batch_size": 32, "epochs": 5, "model": "linear"})
    model = nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    for epoch in range(5):
        inputs = torch.randn(32, 8)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(dim=1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mlflow.log_metrics({"train_loss": loss.item()}, step=epoch)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.pt"
        torch.save(model.state_dict(), path)
        mlflow.log_artifact(str(path))
