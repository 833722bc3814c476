"""The policies that clusters choose from: each is one class in one file, with an entry point.

It has more than twelve modules because each policy has a module of its own.
"""
