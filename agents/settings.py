"""Settings with their help text, and the checks that all agents share.

The command line is made from these fields, so a setting is written once.
"""

from __future__ import annotations

import dataclasses
from typing import Any


def setting(default: Any, text: str) -> Any:
    """Declares a dataclass field that carries its help text."""
    return dataclasses.field(default=default, metadata={"help": text})


def check_replay(config: Any) -> None:
    """Refuses replay sizes with which the first batch would never be sampled.

    Args:
      config: an agent's settings with batch_size, min_replay_size, max_replay_size
        and samples_per_insert.

    Raises:
      ValueError: with the two sizes that contradict each other.
    """
    for smaller, larger in (
        ("min_replay_size", "max_replay_size"),
        ("batch_size", "max_replay_size"),
    ):
        low, high = getattr(config, smaller), getattr(config, larger)
        if low > high:
            raise ValueError(
                f"expected {smaller} <= {larger}, got {low} > {high}: "
                "the learner would never see its first batch."
            )
    # Acme's rate limiter allows an error of a tenth of min_replay_size insertions;
    # Reverb wants room for at least one.
    if config.samples_per_insert <= 0 or config.min_replay_size < 10:
        raise ValueError(
            "expected samples_per_insert > 0 and min_replay_size >= 10, got "
            f"{config.samples_per_insert} and {config.min_replay_size}."
        )
