"""What commands read of a live cluster: a view of it, who leads, and which gang is meant."""
