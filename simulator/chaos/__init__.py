"""Faults by seed on a real control plane: checks that invariants hold and gangs recover."""
