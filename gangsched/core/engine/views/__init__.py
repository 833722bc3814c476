"""What planners are shown of pending and running gangs."""
