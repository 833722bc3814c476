"""Runs of scenarios: one run, sweeps, results, and the search for better settings."""
