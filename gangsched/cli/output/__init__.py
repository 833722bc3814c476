"""How commands print: as tables, or as JSON and YAML."""
