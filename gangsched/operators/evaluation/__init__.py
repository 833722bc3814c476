"""Expressions and searches that users write, evaluated in processes of their own."""
