"""The jobs of kubeflow.org: PyTorchJob, TFJob, MPIJob and further kinds."""
