"""Measurements: each checks its results before it prints a time."""
