"""Invariants of a run, checked on what really happened."""
