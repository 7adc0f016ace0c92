"""The processes of a run: learner, quantizer, replay, counter, actors, evaluator."""
