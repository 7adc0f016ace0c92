"""A learner's variables survive a copy to host arrays and back."""

from __future__ import annotations

import types

import numpy as np
import pytest
import sonnet as snt
import tensorflow as tf

from acme_quant.agents import d4pg, dqn
from acme_quant.agents.adam import Adam
from acme_quant.launch.checkpoints.learner_state import LearnerState


def make_learner(seed: int) -> types.SimpleNamespace:
    """Returns what a learner is to us: modules, an optimizer and a count."""
    tf.random.set_seed(seed)
    policy = snt.nets.MLP([4, 2], name="policy")
    policy(tf.zeros([1, 3]))
    optimizer = snt.optimizers.Adam(1e-2)
    optimizer._initialize(policy.trainable_variables)
    return types.SimpleNamespace(
        _policy_network=policy,
        _policy_optimizer=optimizer,
        _num_steps=tf.Variable(0, dtype=tf.int32),
        _variables={"policy": policy.variables, "critic": ()},
        _discount=0.99,
    )


def take_steps(learner: types.SimpleNamespace, count: int) -> None:
    variables = learner._policy_network.trainable_variables
    for _ in range(count):
        learner._policy_optimizer.apply([v * 0.1 for v in variables], variables)
        learner._num_steps.assign_add(1)


def test_a_restored_learner_goes_on_as_the_saved_one() -> None:
    saved, other = make_learner(0), make_learner(1)
    take_steps(saved, 3)
    arrays = {n: a.copy() for n, a in LearnerState(saved).copy().items()}
    state = LearnerState(other)
    state.restore(arrays)
    take_steps(saved, 2)
    take_steps(other, 2)
    after = LearnerState(saved).copy()
    for name, array in state.copy().items():
        np.testing.assert_array_equal(array, after[name], err_msg=name)
    assert int(other._num_steps) == 5


def test_a_copy_reuses_its_memory_and_is_no_view_of_the_variables() -> None:
    learner = make_learner(0)
    state = LearnerState(learner)
    first = state.copy()
    before = {name: array.copy() for name, array in first.items()}
    take_steps(learner, 1)
    for name, array in first.items():
        np.testing.assert_array_equal(array, before[name])
    again = state.copy()
    assert all(again[name] is first[name] for name in first)
    assert (again["learner/num_steps/000"] == 1).all()


def test_the_policys_arrays_are_named_in_its_order() -> None:
    learner = make_learner(0)
    names = LearnerState(learner).names_of(d4pg.AGENT.policy_variables(learner))
    assert names == [f"learner/policy_network/{i:03d}" for i in range(4)]
    learner._variables = [learner._policy_network.variables]
    assert LearnerState(learner).names_of(dqn.AGENT.policy_variables(learner)) == names


@pytest.mark.parametrize(
    "name", ["learner/num_steps/000", "learner/policy_network/001"]
)
def test_shapes_are_known_without_values(name: str) -> None:
    state = LearnerState(make_learner(0))
    like, values = state.like()[name], state.copy()[name]
    assert (like.shape, like.dtype) == (values.shape, values.dtype)


def aligned(array: np.ndarray) -> np.ndarray:
    """Returns a copy at a multiple of 64 bytes: memory that TensorFlow takes over."""
    room = np.empty(array.nbytes + 64, np.uint8)
    start = -room.ctypes.data % 64
    copy = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    np.copyto(copy, array)
    return copy


def test_arrays_that_were_restored_are_not_written_by_later_steps() -> None:
    """A fused optimizer writes in place, and TensorFlow shares memory with NumPy."""
    learner = make_learner(0)
    learner._policy_optimizer = Adam(1e-2)
    learner._policy_optimizer._initialize(learner._policy_network.trainable_variables)
    state = LearnerState(learner)
    arrays = {name: aligned(array) for name, array in state.copy().items()}
    before = {name: array.copy() for name, array in arrays.items()}
    state.restore(arrays)
    take_steps(learner, 2)
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
