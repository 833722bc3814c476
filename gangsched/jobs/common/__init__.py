"""What the kinds of jobs share: objects, conditions, templates, times."""
