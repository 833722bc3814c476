"""The controllers of jobs: caches, checks before anything is created, API calls."""
