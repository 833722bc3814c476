"""The parts that all kinds of jobs share: objects, conditions, templates, times."""
