"""TrainJobs and their runtimes (trainer.kubeflow.org)."""
