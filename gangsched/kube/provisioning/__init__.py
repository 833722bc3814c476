"""Nodes for gangs that wait for lack of nodes: requests to Cluster Autoscaler."""
