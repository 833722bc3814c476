"""Statuses, conditions, Events and gauges for users.

The folder has more than twelve modules because each kind of status has its own writer.
"""
