"""The best placement of a gang, proved by counting or by CP-SAT."""
