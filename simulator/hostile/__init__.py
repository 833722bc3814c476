"""A hostile tenant, the objects it creates, and a cluster that checks their effects."""
