"""The only place that talks to the Kubernetes API: watch -> facts, orders -> calls."""
