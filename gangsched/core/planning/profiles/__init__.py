"""What is used now and at each moment that a backfill reservation starts: of nodes, of quota."""
