"""Experiments and Trials (Katib, kubeflow.org/v1beta1)."""
