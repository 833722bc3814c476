"""The web page: a read model of the engine's state, who may see which part, and HTTP.

The server runs in a process of its own, so that no viewer costs the scheduler anything.
"""
