"""Virtual time: jobs, API calls and faults around the production engine."""
