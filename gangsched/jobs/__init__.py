"""Training jobs: what a controller does next, as pure functions of what exists."""
