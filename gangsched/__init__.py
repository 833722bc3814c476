"""gangsched: a gang scheduler and queueing system for training jobs on Kubernetes."""

__version__ = "0.1.0"
