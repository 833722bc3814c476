"""Scenarios: clusters, queues, workloads, and the initial state of a run."""
