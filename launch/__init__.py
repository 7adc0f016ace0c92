"""The command line and the program graph; the only part that knows Launchpad."""
