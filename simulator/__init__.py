"""The same core in virtual time: seeded worlds, checkers and replay."""
