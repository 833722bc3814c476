"""State that outlives a restart, in ConfigMaps beside the scheduler."""
