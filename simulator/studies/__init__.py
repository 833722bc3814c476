"""Studies by seed that compare the scheduler's predictions and advice with what then happens."""
