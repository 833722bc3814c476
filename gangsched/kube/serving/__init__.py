"""What protects the ports: certificates and reviews of tokens."""
