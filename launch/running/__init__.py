"""A run from start to end: its processes, restarts, progress and stop."""
