"""The fused Adam takes Sonnet's steps, on Sonnet's variables."""

from __future__ import annotations

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from acme_quant.agents.adam import Adam

STEPS = 200
LEARNING_RATE = 1e-3
SHAPES = ((7,), (33, 17), (1,))
ULP = 2.0**-23


def variables(seed: int) -> list[tf.Variable]:
    rng = np.random.default_rng(seed)
    return [tf.Variable(rng.normal(size=shape).astype(np.float32)) for shape in SHAPES]


def gradients(step: int) -> list[tf.Tensor]:
    """Returns gradients over ten powers of ten, some of them zero."""
    rng = np.random.default_rng(step)
    scales = 10.0 ** rng.integers(-8, 3)
    made = [rng.normal(size=shape) * scales for shape in SHAPES]
    return [tf.constant(g * (rng.random(g.shape) > 0.1), tf.float32) for g in made]


def test_every_step_is_sonnets_step() -> None:
    """From the same state, a step differs by the roundings of one step alone.

    A step is at most learning_rate / sqrt(1 - beta2) = 32 learning rates long. Either
    form takes fewer than 16 roundings of half a unit; the sum is rounded once more.
    """
    expected, found = variables(0), variables(0)
    sonnets, ours = snt.optimizers.Adam(LEARNING_RATE), Adam(LEARNING_RATE)
    for step in range(STEPS):
        updates = gradients(step)
        sonnets.apply(updates, expected)
        ours.apply(updates, found)
        for a, b in zip(expected, found):
            bound = 16 * ULP * 32 * LEARNING_RATE + ULP * np.abs(a.numpy())
            assert (np.abs(a.numpy() - b.numpy()) <= bound).all(), step
        for theirs, mine in zip((*expected, *sonnets.m), (*found, *ours.m)):
            mine.assign(theirs)
        for theirs, mine in zip(sonnets.v, ours.v):
            np.testing.assert_allclose(mine.numpy(), theirs.numpy(), rtol=4 * ULP)
            mine.assign(theirs)


def test_a_parameter_without_a_gradient_stays() -> None:
    parameters = variables(1)
    before = parameters[1].numpy()
    updates = gradients(0)
    Adam(LEARNING_RATE).apply([updates[0], None, updates[2]], parameters)
    assert (parameters[1].numpy() == before).all()


def test_its_variables_are_named_as_sonnets() -> None:
    """So a checkpoint of either is one of the other."""
    names = []
    for optimizer in (snt.optimizers.Adam(LEARNING_RATE), Adam(LEARNING_RATE)):
        optimizer.apply(gradients(0), variables(0))
        names.append([(v.name, v.shape) for v in optimizer.variables])
    assert names[0] == names[1]


def test_updates_of_another_number_are_refused() -> None:
    with pytest.raises(ValueError, match="expected 3 updates, one for each parameter"):
        Adam(LEARNING_RATE).apply(gradients(0)[:2], variables(0))
