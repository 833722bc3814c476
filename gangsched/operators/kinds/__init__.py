"""What is particular to each kind of job: parsing, validation, keys."""
