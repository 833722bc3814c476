"""Work that may fail without stopping scheduling, and deadlines for it."""
