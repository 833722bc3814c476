"""Scenarios on a real control plane with KWOK nodes."""
