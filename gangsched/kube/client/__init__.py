"""The Kubernetes API: requests, watches, errors, and limits on what is read."""
