"""`gangsched submit`: a batch script with #SBATCH lines, or flags, becomes a job of the cluster."""
