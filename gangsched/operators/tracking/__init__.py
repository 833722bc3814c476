"""Runs of jobs on an MLflow server: one for each job, whatever the server does."""
