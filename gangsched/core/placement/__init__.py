"""Placement arithmetic: how many pods of a kind fit where, filling, and explaining a misfit."""
