"""Placeholder pods, which ask any autoscaler for the nodes of a whole gang."""
