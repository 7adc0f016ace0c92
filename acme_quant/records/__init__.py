"""What outlives a process: checkpoints, energy and CPU time, rows of CSV."""
