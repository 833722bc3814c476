"""Runs of scenarios: one run, many runs, their results, and the search for better settings."""
