"""Vector environments: dm_env in batches, from a list or from EnvPool."""

from __future__ import annotations

import dm_env
import loop_parts
import numpy as np
import pytest
import tree

from acme_quant import environments
from acme_quant.environments import envpool_dm, vector
from acme_quant.environments.vector import make_vector_environment


def test_list_steps_its_members_and_restarts_those_that_ended() -> None:
    members = [loop_parts.CountingEnvironment(2 + i, seed=i) for i in range(2)]
    environment = vector.ListEnvironment(members)
    batch = environment.reset()
    seen = [batch.step_type.tolist()]
    for _ in range(4):
        batch = environment.step(np.zeros((2, 2), np.float32))
        seen.append(batch.step_type.tolist())
    assert seen == [[0, 0], [1, 1], [2, 1], [0, 2], [1, 0]]
    assert batch.observation.shape == (2, 3)
    assert batch.reward.dtype == batch.discount.dtype == np.float32
    assert environment.num_envs == 2


def test_split_gives_every_environment_its_rows() -> None:
    batch = dm_env.TimeStep(
        np.array([0, 1]),
        np.array([0, 2], np.float32),
        np.array([1, 0.5], np.float32),
        {"b": np.arange(4).reshape(2, 2), "a": np.array([7, 8])},
    )
    first, second = vector.split(batch)
    assert first.first() and second.mid()
    assert (second.reward, second.discount) == (2, 0.5)
    assert second.observation["a"] == 8
    np.testing.assert_array_equal(first.observation["b"], [0, 1])


def test_members_get_seeds_of_their_own() -> None:
    environment = make_vector_environment("gym:CartPole-v1", 2, seed=3)
    rows = environment.reset().observation
    alone = environments.make_environment("gym:CartPole-v1", seed=4)
    assert not np.array_equal(rows[0], rows[1])
    np.testing.assert_array_equal(rows[1], alone.reset().observation)
    environment.close()
    with pytest.raises(ValueError, match="at least 1"):
        make_vector_environment("gym:CartPole-v1", 0, seed=3)


@pytest.mark.parametrize(
    ("task", "like", "action"),
    [
        ("CheetahRun-v1", "dm_control:cheetah:run", np.zeros((2, 6), np.float32)),
        ("WalkerStand-v1", "dm_control:walker:stand", np.zeros((2, 6), "f4")),
        ("CartPole-v1", "gym:CartPole-v1", np.ones(2, np.int32)),
        ("Pong-v5", "atari:Pong", np.ones(2, np.int32)),
    ],
)
def test_envpool_serves_the_specs_of_the_environment_it_stands_for(
    task: str, like: str, action: np.ndarray
) -> None:
    pytest.importorskip("envpool")
    pool = make_vector_environment(f"envpool_dm:{task}", 2, seed=1)
    batch = pool.reset()
    assert batch.step_type.tolist() == [0, 0]
    for _ in range(3):
        batch = pool.step(action)
    assert batch.step_type.tolist() == [1, 1]
    other = environments.make_environment(like, seed=1)
    for mine, want in (
        (pool.observation_spec(), other.observation_spec()),
        (pool.action_spec(), other.action_spec()),
    ):
        shapes = [(k, s.shape, s.dtype) for k, s in _leaves(mine)]
        assert shapes == [(k, s.shape, s.dtype) for k, s in _leaves(want)]
    for key, spec in _leaves(pool.observation_spec()):
        value = batch.observation[key] if key else batch.observation
        assert value.shape == (2, *spec.shape) and value.dtype == spec.dtype
    pool.close()


def _leaves(spec: object) -> list:
    return sorted(spec.items()) if hasattr(spec, "items") else [("", spec)]


def test_envpool_episode_ends_and_starts_anew() -> None:
    pytest.importorskip("envpool")
    pool = make_vector_environment("envpool_dm:CartPole-v1", 1, seed=1)
    batch = pool.reset()
    while batch.step_type[0] != dm_env.StepType.LAST:
        batch = pool.step(np.ones(1, np.int32))
    assert batch.discount[0] == 0
    assert pool.step(np.ones(1, np.int32)).step_type[0] == dm_env.StepType.FIRST


@pytest.mark.parametrize(
    ("task", "action", "limit"),
    [
        ("MountainCar-v0", np.ones(2, np.int32), 200),
        ("Pendulum-v1", np.zeros((2, 1), np.float32), 200),
        ("CheetahRun-v1", np.zeros((2, 6), np.float32), 1000),
    ],
)
def test_envpool_episode_at_its_step_limit_keeps_discount_one(
    task: str, action: np.ndarray, limit: int
) -> None:
    pytest.importorskip("envpool")
    pool = make_vector_environment(f"envpool_dm:{task}", 2, seed=1)
    for _ in range(2):  # The count starts anew with the second episode.
        batch = pool.reset()
        for _ in range(limit):
            assert not (batch.step_type == dm_env.StepType.LAST).any()
            batch = pool.step(action)
        assert (batch.step_type == dm_env.StepType.LAST).all()
        assert batch.discount.tolist() == [1, 1]
        assert batch.discount.dtype == np.float32
    pool.close()


@pytest.mark.parametrize(
    ("task", "rows", "written"),
    [
        ("Pendulum-v1", [[-1], [0.5], [3]], [[-2], [1], [2]]),
        (
            "CarRacing-v2",
            [[-1, -1, -1], [0, 0, 0], [9, 1, 0.5]],
            [[-1, 0, 0], [0, 0.5, 0.5], [1, 1, 0.75]],
        ),
    ],
)
def test_envpool_gets_actions_clipped_and_scaled_to_its_bounds(
    task: str, rows: list, written: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("envpool")
    pool = make_vector_environment(f"envpool_dm:{task}", 3, seed=1)
    pool.reset()
    step, sent = pool._pool.step, []

    def record(actions: np.ndarray) -> object:
        sent.append(actions)
        return step(actions)

    monkeypatch.setattr(pool._pool, "step", record)
    spec = pool.action_spec()
    assert (spec.minimum == -1).all() and (spec.maximum == 1).all()
    pool.step(np.array(rows, np.float32))
    np.testing.assert_array_equal(sent[0], np.array(written, np.float32))
    pool.close()


def test_a_nan_action_fails_the_episode_of_its_envpool_member() -> None:
    pytest.importorskip("envpool")
    pool = make_vector_environment("envpool_dm:Pendulum-v1", 3, seed=1)
    alone = make_vector_environment("envpool_dm:Pendulum-v1", 3, seed=1)
    pool.reset(), alone.reset()
    actions = np.zeros((3, 1), np.float32)
    pool.step(actions), alone.step(actions)
    actions[1] = np.nan
    batch = pool.step(actions)
    assert [str(error) for error in pool.take_failures()] == ["action is NaN."]
    assert pool.take_failures() == []
    assert batch.step_type.tolist() == [1, 0, 1]
    others = alone.step(np.zeros((3, 1), np.float32))
    np.testing.assert_array_equal(batch.observation[::2], others.observation[::2])
    batch = pool.step(np.zeros((3, 1), np.float32))
    assert batch.step_type.tolist() == [1, 1, 1]
    assert np.isfinite(batch.observation).all()
    # The member's limit of 200 steps counts from its new start, two steps later.
    seen = [pool.step(np.zeros((3, 1), np.float32)) for _ in range(199)]
    assert seen[196].step_type.tolist() == [2, 1, 2]
    assert seen[198].step_type.tolist() == [1, 2, 1]
    assert seen[196].discount[0] == seen[198].discount[1] == 1
    pool.close()


def test_a_nan_action_that_only_starts_an_episode_fails_nothing() -> None:
    pytest.importorskip("envpool")
    pool = make_vector_environment("envpool_dm:Pendulum-v1", 1, seed=1)
    batch = pool.reset()
    while batch.step_type[0] != dm_env.StepType.LAST:
        batch = pool.step(np.zeros((1, 1), np.float32))
    batch = pool.step(np.full((1, 1), np.nan, np.float32))
    assert batch.step_type[0] == dm_env.StepType.FIRST
    assert pool.take_failures() == []
    pool.close()


def _poison(pool: envpool_dm.Pool, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Lets the first row of the next time steps that are read be infinite."""
    read, left = pool._read, [times]

    def poisoned(timestep: object) -> dm_env.TimeStep:
        batch = read(timestep)
        if left[0]:
            left[0] -= 1
            batch.observation["velocity"][0, 1] = np.inf
        return batch

    monkeypatch.setattr(pool, "_read", poisoned)


WORDS = "observation.velocity is not finite."


def test_an_infinite_observation_fails_the_episode_of_its_envpool_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("envpool")
    pool = make_vector_environment("envpool_dm:CheetahRun-v1", 2, seed=1)
    pool.reset()
    actions = np.zeros((2, 6), np.float32)
    _poison(pool, monkeypatch, 2)  # The step, and the first start after it.
    batch = pool.step(actions)
    assert [str(error) for error in pool.take_failures()] == [WORDS] * 2
    assert batch.step_type.tolist() == [0, 1]
    assert np.isfinite(batch.observation["velocity"]).all()
    _poison(pool, monkeypatch, 99)
    with pytest.raises(environments.EpisodeFailed, match="velocity is not finite"):
        pool.reset()
    assert len(pool.take_failures()) == 10
    pool.close()


def test_only_the_reward_of_a_step_can_fail_an_envpool_member(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("envpool")
    pool = make_vector_environment("envpool_dm:CheetahRun-v1", 2, seed=1)
    read = pool._read

    def poisoned(timestep: object) -> dm_env.TimeStep:
        batch = read(timestep)
        return batch._replace(reward=np.full_like(batch.reward, np.nan))

    monkeypatch.setattr(pool, "_read", poisoned)
    pool.reset()
    assert pool.take_failures() == []
    batch = pool.step(np.zeros((2, 6), np.float32))
    assert batch.step_type.tolist() == [0, 0]
    assert [str(e) for e in pool.take_failures()] == ["reward is not finite."] * 2
    pool.close()


def test_an_infinite_observation_fails_the_episode_of_a_pool_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("envpool")
    single = environments.make_environment("envpool_dm:CheetahRun-v1", seed=1)
    single.reset()
    _poison(single.environment._pool, monkeypatch, 1)
    with pytest.raises(environments.EpisodeFailed) as caught:
        single.step(np.zeros(6, np.float32))
    assert str(caught.value) == WORDS
    assert single.reset().first()
    assert single.step(np.zeros(6, np.float32)).mid()
    single.close()


def test_unknown_envpool_task_is_refused() -> None:
    pytest.importorskip("envpool")
    with pytest.raises(environments.UnknownEnvironment, match="CheetahRun-v1"):
        make_vector_environment("envpool_dm:CheetahJump-v1", 1, seed=1)


def test_a_batch_is_split_as_its_nest_says() -> None:
    nest = {
        "camera": np.arange(24, dtype=np.uint8).reshape(3, 2, 4),
        "body": (np.arange(3.0), {"arm": np.arange(6.0).reshape(3, 2)}),
    }
    kinds = np.array([0, 1, 2])
    batch = dm_env.TimeStep(kinds, np.arange(3), np.ones(3), nest)
    for i, step in enumerate(vector.split(batch)):
        assert step.step_type is dm_env.StepType(i)
        assert (step.reward, step.discount) == (i, 1)
        expected = tree.map_structure(lambda leaf, i=i: leaf[i], nest)
        tree.assert_same_structure(step.observation, expected)
        for found, leaf in zip(tree.flatten(step.observation), tree.flatten(expected)):
            np.testing.assert_array_equal(found, leaf)
