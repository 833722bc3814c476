"""Background tasks: they may fail while scheduling continues. Also deadlines for computations."""
