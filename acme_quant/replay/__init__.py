"""Transitions into and out of a table: fast adder, Reverb client, local replay."""
