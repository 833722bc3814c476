"""Protection of the ports: certificates and token reviews."""
