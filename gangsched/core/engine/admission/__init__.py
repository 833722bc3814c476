"""Which gangs their queues admit and keep, by the rules of the queues."""
