"""What the scheduler says by seed, held against what then happens."""
