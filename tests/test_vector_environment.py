"""Vector environments: dm_env in batches, from a list or from EnvPool."""

from __future__ import annotations

import dm_env
import loop_parts
import numpy as np
import pytest

from acme_quant import environments, vector_environment
from acme_quant.vector_environment import make_vector_environment


def test_list_steps_its_members_and_restarts_those_that_ended() -> None:
    members = [loop_parts.CountingEnvironment(2 + i, seed=i) for i in range(2)]
    environment = vector_environment.ListEnvironment(members)
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
    first, second = vector_environment.split(batch)
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


def test_unknown_envpool_task_is_refused() -> None:
    pytest.importorskip("envpool")
    with pytest.raises(environments.UnknownEnvironment, match="CheetahRun-v1"):
        make_vector_environment("envpool_dm:CheetahJump-v1", 1, seed=1)
