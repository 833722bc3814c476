"""The state of the scheduler: it folds facts, hands out snapshots and accepts plans."""
