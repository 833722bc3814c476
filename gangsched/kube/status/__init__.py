"""What users read: statuses, conditions, Events and gauges."""
