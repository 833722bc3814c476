"""What administrators declare: nodes, queues, topologies, priority classes."""
