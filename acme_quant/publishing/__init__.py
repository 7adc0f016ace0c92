"""Learner to actors: variables become a versioned payload that clients pull."""
