"""Training jobs as pure functions: what a job wants, what exists, what to do next."""
