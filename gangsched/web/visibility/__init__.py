"""Kueue's API of pending workloads, as an aggregated API of the cluster."""
