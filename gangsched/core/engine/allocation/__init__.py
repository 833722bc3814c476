"""What queues, reservations and topologies declare, and what is charged to nodes and queues."""
