"""Which running gangs to preempt or move, and what that costs."""
