"""Calls to other processes that end, and servers that this host alone can reach."""
