"""Nodes as arrays, and what is taken of them."""
