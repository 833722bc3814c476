"""One planning cycle, as a pure function of a snapshot."""
