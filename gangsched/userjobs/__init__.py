"""A user's jobs: listed, held, released and cancelled with the rights of the caller alone."""
