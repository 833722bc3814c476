"""The `gangsched` command.

The folder has more than twelve modules because each command, or group of commands, has its own.
"""
