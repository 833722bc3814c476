"""Serve a training script's metrics on port 8000 until the pod is stopped."""

import prometheus_client

prometheus_client.Gauge("training_epoch", "Epoch that is trained.").set(3)
_, thread = prometheus_client.start_http_server(8000)
thread.join()
