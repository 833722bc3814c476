"""Choices that two clusters could want differently: one class, one file, one entry point."""
