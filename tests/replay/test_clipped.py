"""What a learner clips of its batches is counted, and said once when it is much."""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np
import pytest
import reverb
import tensorflow as tf
from acme import types

from acme_quant import agents
from acme_quant.agents import d4pg, dqn
from acme_quant.replay import clipped

REWARDS = np.float32([0.0, 0.5, -1.0, 1.25, -7.0, 7.0, 8.0, -160.0])
DISCOUNTS = np.float32([1.0, 0.9, 0.0, 1.0, 0.96, 0.0, 0.96, 0.0])


class Builder:
    """An Acme builder of one batch, again and again."""

    def make_dataset_iterator(self, replay_client: Any) -> Any:
        del replay_client
        data = types.Transition((), (), REWARDS, DISCOUNTS, (), ())
        info = reverb.SampleInfo(*(np.zeros(8) for _ in reverb.SampleInfo._fields))
        sample = reverb.ReplaySample(info, data)
        return iter(tf.data.Dataset.from_tensors(sample).repeat())


class Rows(list):
    """A logger that keeps its rows."""

    write = list.append


def make(name: str, config: Any) -> tuple[clipped.CountingBuilder, Any]:
    count = functools.partial(agents.get(name).clipped, config)
    builder = clipped.CountingBuilder(Builder(), count)
    iterator = builder.make_dataset_iterator(None)

    @tf.function
    def step() -> tf.Tensor:
        return tf.reduce_sum(next(iterator).data.reward)

    return builder, step


def test_dqn_counts_the_returns_that_acmes_learner_clips() -> None:
    clips = tf.clip_by_value(REWARDS, -1.0, 1.0) != REWARDS
    found = dqn.AGENT.clipped(dqn.Config(), REWARDS, DISCOUNTS)
    np.testing.assert_array_equal(found, clips)


@pytest.mark.parametrize("bound", [1.0, 20.0, 150.0])
def test_d4pg_counts_the_targets_whose_outermost_atoms_are_clipped(
    bound: float,
) -> None:
    config = d4pg.Config(value_bound=bound)
    atoms = np.linspace(-bound, bound, config.num_atoms, dtype=np.float32)
    targets = REWARDS[:, None] + config.discount * DISCOUNTS[:, None] * atoms
    clips = (abs(targets) > bound).any(1)
    found = d4pg.AGENT.clipped(config, REWARDS, DISCOUNTS)
    np.testing.assert_array_equal(found, clips)


@pytest.mark.parametrize(
    "name,config,share", [("dqn", dqn.Config(), 5 / 8), ("d4pg", d4pg.Config(), 2 / 8)]
)
def test_rows_tell_the_share_since_the_last_row(
    name: str, config: Any, share: float
) -> None:
    builder, step = make(name, config)
    rows = Rows()
    logger = clipped.ClippedShare(rows, builder, "clips")
    for steps in (1, 3):
        for _ in range(steps):
            assert float(step()) == REWARDS.sum()
        logger.write({"loss": 1.0})
    assert rows == [{"loss": 1.0, "clipped_share": share}] * 2


def test_much_clipping_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    said = []
    for name, config in (
        ("dqn", dqn.Config()),
        ("d4pg", d4pg.Config(value_bound=1e6)),
    ):
        builder, step = make(name, config)
        logger = clipped.ClippedShare(Rows(), builder, agents.get(name).clipping)
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                step()
                logger.write({})
        said.append([r.getMessage() for r in caplog.records])
        caplog.clear()
    (sentence,), nothing = said
    assert "[-1, 1]" in sentence and "62 %" in sentence
    assert not nothing
