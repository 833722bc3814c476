"""What each watch does with an object: API objects become facts for the engine.

It has more than twelve modules because each kind of object has a module of its own.
"""
