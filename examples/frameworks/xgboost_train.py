"""XGBoost: a tracker on the master, and every pod trains on its share of the rows."""

import os
import socket

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    own = socket.gethostbyname(socket.gethostname())
    tracker = RabitTracker(host_ip=own, n_workers=size, port=port)
    tracker.start()

with collective.CommunicatorContext(
    dmlc_communicator="rabit",
    dmlc_tracker_uri=socket.gethostbyname(address),
    dmlc_tracker_port=port,
    dmlc_task_id=str(rank),
    dmlc_retry=30,
):
    generator = np.random.default_rng(rank)
    features = generator.normal(size=(2000, 8))
    matrix = xgboost.DMatrix(features, label=features.sum(axis=1) > 0)
    results: dict[str, dict[str, list[float]]] = {}
    options = {"objective": "binary:logistic", "max_depth": 3, "nthread": 1}
    xgboost.train(
        options, matrix, num_boost_round=10, evals=[(matrix, "train")], evals_result=results
    )
    print(
        f"rank {collective.get_rank()} of {collective.get_world_size()}: "
        f"loss {results['train']['logloss'][-1]:.4f}",
        flush=True,
    )
if rank == 0:
    tracker.wait_for()
