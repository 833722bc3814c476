"""JobSets (jobset.x-k8s.io)."""
