"""The read-only REST interface: the models of the pages as JSON, described by OpenAPI."""
