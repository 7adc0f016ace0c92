"""One publication: from the learner's variables to an actor's first action."""
