"""Pydantic models of our CRDs and of other objects that users write, and the CRD generator."""
