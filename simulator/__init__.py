"""The scheduler's core in virtual time: scenarios, faults, checks and studies."""
