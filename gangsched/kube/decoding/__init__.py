"""JSON of API objects to the values of the core."""
