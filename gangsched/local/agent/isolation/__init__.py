"""Isolation of the pods of process nodes: namespaces, root folders, networks."""
