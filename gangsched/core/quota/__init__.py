"""Who may use how much: the tree of queues, their usage, and run times."""
