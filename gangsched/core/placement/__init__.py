"""Placement arithmetic: how many pods of a kind fit where, filling, and explaining a misfit.

It has more than twelve modules because each is one step of the same search.
"""
