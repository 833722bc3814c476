"""Who has what: the tree of queues, what they use, and for how long."""
