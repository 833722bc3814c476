"""The `gangsched` command."""
