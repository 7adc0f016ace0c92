"""What a run resumes from: learner state and replay, saved and found again."""
