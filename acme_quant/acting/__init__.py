"""Observation to action, step after step: actor, exploration, loop, clock."""
