"""The snapshot that a plan is made on, and what becomes of a plan on the present state."""
