"""Faults on a real control plane, driven by a seed: what must hold, holds, and all recovers."""
