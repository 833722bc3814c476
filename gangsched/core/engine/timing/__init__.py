"""Deadlines of starts, back-off, run times and the watch over the minimum."""
