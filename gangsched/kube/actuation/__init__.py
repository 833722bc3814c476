"""Orders of the engine as API calls: bind and evict pods, change MIG layouts."""
