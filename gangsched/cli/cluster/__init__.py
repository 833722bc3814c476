"""What commands read from a live cluster: its state, its leader, and the gang of a name."""
