"""The kinds of training jobs, field for field as their own APIs have them."""
