"""Scenarios: clusters, queues, workloads, and where a run begins."""
