"""What users read: statuses, conditions, Events and gauges.

It has more than twelve modules because each kind of status has a writer of its own.
"""
