"""The HTTPS API of process nodes: logs, exec and port-forward."""
