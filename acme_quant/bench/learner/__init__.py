"""A learner's step: Acme's own against ours, with its limits beside."""
