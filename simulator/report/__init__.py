"""The report of a simulation: one page that opens without a network."""
