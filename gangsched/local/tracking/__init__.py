"""The tracking server of a local control plane."""
