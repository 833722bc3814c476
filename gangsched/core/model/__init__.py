"""The nouns of the core: frozen values that compare by value."""
