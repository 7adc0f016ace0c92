"""What is certain of a run before it starts: whether it learns and publishes."""

from __future__ import annotations

from acme_quant.launch.settings.config import Run

# Acme's rate limiter lets the samples run ahead by this share of min_replay_size.
_AHEAD = 0.1


def warnings(run: Run) -> list[str]:
    """Returns a sentence on each thing that the run's steps are too few for."""
    config, agent = run.config, run.agent_config
    if config.checkpoint_replay and run.start.checkpoint is not None:
        return []  # The replay may come back full.
    steps = config.max_actor_steps - run.start.actor_steps
    if steps < agent.min_replay_size:
        return [
            f"warning: nothing will be learnt: {steps} environment steps end before "
            f"--min_replay_size={agent.min_replay_size} transitions are there"
        ]
    most = most_learner_steps(run, steps)
    by_steps = config.actor == "engine" and not config.publish_period_s
    if by_steps and config.publish_period > most:
        return [
            f"warning: the actors will keep their first policy: "
            f"--publish_period={config.publish_period} is more than the {most} learner "
            f"steps that {steps} environment steps allow"
        ]
    return []


def most_learner_steps(run: Run, actor_steps: int) -> int:
    """Returns how many learner steps the replay's rate allows for these steps."""
    agent = run.agent_config
    inserts = actor_steps - (1 - _AHEAD) * agent.min_replay_size
    samples = (inserts + 1) * agent.samples_per_insert + 1
    return int(samples / agent.batch_size) + 1
