"""The checks of settings that all agents share."""

from __future__ import annotations

from typing import Protocol

from acme_quant.settings import refusals


class ReplaySettings(Protocol):
    """The settings of every agent that speak of its replay."""

    batch_size: int
    samples_per_insert: float
    min_replay_size: int
    max_replay_size: int


def check(config: ReplaySettings) -> None:
    """Refuses settings out of bounds, and a replay that never gives a first batch.

    Raises:
      ValueError: with one sentence on the first that is refused.
    """
    refusals.check(config)
    for smaller in ("min_replay_size", "batch_size"):
        low, high = getattr(config, smaller), config.max_replay_size
        if low > high:
            raise ValueError(
                f"expected {smaller} <= max_replay_size, got {low} > {high}: "
                "the learner would never see its first batch."
            )
