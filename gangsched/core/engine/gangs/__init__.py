"""One gang with its members, and what planners see of it."""
