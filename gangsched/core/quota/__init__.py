"""Quotas: the tree of queues, their usage, and run times."""
