"""Hyperparameter search as Katib has it: Experiments and Trials; needs the extra `experiments`."""
