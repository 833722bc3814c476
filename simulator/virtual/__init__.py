"""Virtual time: loads, API calls and faults around the production engine."""
