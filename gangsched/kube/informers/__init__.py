"""Informers: each turns the API objects of one watch into facts for the engine.

The folder has more than twelve modules because each kind of object has its own module.
"""
