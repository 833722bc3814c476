"""The border: pydantic models of our CRDs and of what else comes in, and the CRD generator."""
