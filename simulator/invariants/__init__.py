"""Invariants of a run, judged from what really happened."""
