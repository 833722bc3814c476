"""The `gangsched` command.

The folder has more than twelve modules because each has one command, or commands of one kind.
"""
