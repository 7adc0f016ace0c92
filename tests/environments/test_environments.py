"""Environments by name: what comes back, and one sentence for what cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import dm_env
import numpy as np
import pytest

from acme_quant import environments
from acme_quant.environments import (
    EpisodeFailed,
    UnknownEnvironment,
    UnsupportedEnvironment,
    atari,
    make_environment,
)

NAMES = (
    "dm_control:cartpole:balance",
    "dm_control:ball_in_cup:catch",
    "dm_control:walker:stand",
    "gym:CartPole-v1",
    "gym:Pendulum-v1",
    "gym:LunarLander-v3",
    "gym:Acrobot-v1",
    "gym:MountainCar-v0",
    "gym:Blackjack-v1",
    "atari:Pong",
)


def leaves(nest: object) -> list:
    if isinstance(nest, dict):
        return [leaf for key in sorted(nest) for leaf in leaves(nest[key])]
    if isinstance(nest, tuple):
        return [leaf for part in nest for leaf in leaves(part)]
    return [nest]


def random_action(spec: object, rng: np.random.Generator) -> np.ndarray:
    if environments.action_kind(spec) == "discrete":
        return np.int32(rng.integers(spec.num_values))
    return rng.uniform(-1, 1, spec.shape).astype(np.float32)


def rollout(name: str, seed: int, steps: int = 40) -> list[dm_env.TimeStep]:
    environment, rng = make_environment(name, seed=seed), np.random.default_rng(7)
    timesteps = [environment.reset()]
    for _ in range(steps):
        action = random_action(environment.action_spec(), rng)
        timesteps.append(environment.step(action))
    environment.close()
    return timesteps


def same(a: dm_env.TimeStep, b: dm_env.TimeStep) -> bool:
    pairs = zip(leaves(a.observation), leaves(b.observation))
    return a[:3] == b[:3] and all(np.array_equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_every_time_step_fits_the_specs(name: str) -> None:
    spec = environments.environment_spec(name)
    for timestep in rollout(name, seed=1):
        fields = zip(leaves(timestep.observation), leaves(spec.observations))
        for value, field in fields:
            assert isinstance(value, np.ndarray)
            assert value.dtype == field.dtype and value.shape == field.shape
            assert field.dtype in (np.float32, np.uint8)
        if not timestep.first():
            assert type(timestep.reward) is type(timestep.discount) is np.float32


@pytest.mark.parametrize("name", NAMES)
def test_a_seed_decides_the_time_steps(name: str) -> None:
    first, again, other = (rollout(name, seed) for seed in (3, 3, 4))
    assert all(map(same, first, again))
    assert not all(map(same, first, other))


def test_every_task_of_the_suite_can_be_made_and_stepped() -> None:
    from acme_quant.environments import dm_control

    for name in dm_control.names():
        environment = make_environment(name, seed=0)
        environment.reset()
        shape = environment.action_spec().shape
        assert np.isfinite(environment.step(np.ones(shape, np.float32)).reward), name


def test_observation_keys_come_sorted_and_scalars_stay_scalars() -> None:
    observation = make_environment("dm_control:walker:run", seed=0).reset().observation
    assert list(observation) == ["height", "orientations", "velocity"]
    assert observation["height"].shape == ()


def test_actions_outside_the_canonical_box_are_clipped() -> None:
    a, b = (make_environment("gym:Pendulum-v1", seed=0) for _ in range(2))
    a.reset(), b.reset()
    assert same(a.step(np.float32([50.0])), b.step(np.float32([1.0])))


def test_the_canonical_box_covers_each_dimension_of_an_uneven_one() -> None:
    environment = make_environment("dm_control:quadruped:walk", seed=0)
    bounds = environment.environment.action_spec()
    for end, bound in ((-1.0, bounds.minimum), (1.0, bounds.maximum)):
        action = np.full(bounds.shape, end, np.float32)
        assert np.array_equal(environment._actions.write(action), bound)


def test_termination_ends_with_discount_zero() -> None:
    environment = make_environment("gym:CartPole-v1", seed=0)
    environment.reset()
    while not (timestep := environment.step(np.int32(1))).last():
        assert timestep.discount == 1.0
    assert timestep.discount == 0.0
    assert environment.step(np.int32(1)).first()


def test_a_time_limit_keeps_discount_one() -> None:
    environment = make_environment("gym:Pendulum-v1", seed=0)
    environment.reset()
    count = 1
    while not (timestep := environment.step(np.zeros(1, np.float32))).last():
        count += 1
    assert (count, timestep.discount) == (200, 1.0)


def test_a_nan_action_fails_the_episode_and_the_next_one_starts() -> None:
    environment = make_environment("dm_control:cartpole:balance", seed=0)
    environment.reset()
    with pytest.raises(EpisodeFailed, match="action is NaN"):
        environment.step(np.float32([np.nan]))
    assert environment.step(np.float32([0.0])).first()


def test_diverged_physics_fail_the_episode_and_the_next_one_starts() -> None:
    environment = make_environment("dm_control:cartpole:balance", seed=0)
    environment.reset()
    environment.environment.physics.data.qpos[:] = np.nan
    with pytest.raises(EpisodeFailed):
        environment.step(np.float32([0.0]))
    assert environment.reset().first()
    assert environment.step(np.float32([0.0])).mid()


def test_an_action_that_does_not_exist_is_an_error() -> None:
    environment = make_environment("gym:CartPole-v1", seed=0)
    environment.reset()
    with pytest.raises(ValueError, match=r"must lie in 0\.\.1, got 2"):
        environment.step(2)


def test_atari_stacks_four_grey_images_newest_last() -> None:
    before, after = rollout("atari:Pong", seed=0, steps=6)[-2:]
    assert after.observation.shape == (84, 84, 4)
    assert np.array_equal(after.observation[..., :3], before.observation[..., 1:])


def test_atari_repeats_an_action_for_four_frames() -> None:
    environment = make_environment("atari:Pong", seed=0)
    environment.reset()
    frames = environment.environment._ale.getEpisodeFrameNumber
    before = frames()
    environment.step(np.int32(0))
    assert frames() == before + 4


def test_sticky_actions_change_the_game() -> None:
    def play(sticky_actions: float) -> list[dm_env.TimeStep]:
        environment = make_environment(
            "atari:Pong", seed=0, sticky_actions=sticky_actions
        )
        environment.reset()
        return [environment.step(np.int32(2 + i % 2)) for i in range(30)]

    assert all(map(same, play(0.25), play(0.25)))
    assert not all(map(same, play(0.25), play(0.9)))


@pytest.mark.parametrize(
    "name, words",
    [
        ("dm_control:cartpole:balanse", "nearest: dm_control:cartpole:balance"),
        ("dm_control:humanoid_cmu:stand", "nearest: dm_control:humanoid_CMU:stand"),
        ("gym:CartPol-v1", "nearest: gym:CartPole-v1"),
        ("atari:Pongg", "nearest: atari:Pong"),
        ("cartpole:balance", "expected dm_control:domain:task, gym:ID, atari:Game"),
        ("CartPole-v1", "nearest: gym:CartPole-v1"),
        ("", "unknown environment ''"),
        (":", "unknown environment ':'"),
        ("gym:", "no environment ''"),
        ("no_such_module_anywhere:make", "unknown environment"),
        ("json:no_such_factory", "json has no factory 'no_such_factory'"),
    ],
)
def test_an_unknown_name_gets_one_sentence(name: str, words: str) -> None:
    with pytest.raises(UnknownEnvironment) as caught:
        make_environment(name, seed=0)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_options_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="sticky_actions is for atari"):
        make_environment("gym:CartPole-v1", seed=0, sticky_actions=0.25)
    with pytest.raises(ValueError, match="action_limit must be positive"):
        make_environment("gym:Pendulum-v1", seed=0, action_limit=-1.0)


def test_a_factory_that_fails_is_named_with_its_cause() -> None:
    with pytest.raises(UnsupportedEnvironment, match="json:loads failed: TypeError"):
        make_environment("json:loads", seed=0)
    with pytest.raises(UnsupportedEnvironment, match="must return a dm_env"):
        make_environment("builtins:dict", seed=0)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise SystemExit(0)", "failing:make failed: SystemExit: 0"),
        (
            r"raise RuntimeError('no licence\nask for one')",
            "failing:make failed: RuntimeError: no licence ask for one",
        ),
    ],
)
def test_a_factory_that_exits_or_raises_is_told_in_one_line(
    body: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing.py").write_text(f"def make():\n    {body}\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "failing", raising=False)
    with pytest.raises(UnsupportedEnvironment) as caught:
        make_environment("failing:make", seed=0)
    assert str(caught.value) == words


def test_a_module_that_exits_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "exiting.py").write_text("raise SystemExit(0)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnsupportedEnvironment, match="^exiting:make: importing"):
        make_environment("exiting:make", seed=0)


def test_a_refused_gym_factory_is_named_with_the_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spaceless.py").write_text(
        "import gymnasium\nclass Make(gymnasium.Env):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnsupportedEnvironment, match="^spaceless:Make: action_space "):
        make_environment("spaceless:Make", seed=0)


@pytest.mark.parametrize("spelling", ["up_n_down", "UpNDown", "upndown"])
def test_an_atari_game_is_found_in_any_spelling(spelling: str) -> None:
    assert atari.rom_id(spelling) == "up_n_down"


def test_every_atari_name_is_found() -> None:
    names = [name.partition(":")[2] for name in atari.names()]
    assert "TicTacToe3D" in names
    assert [atari.rom_id(name) for name in names] == atari.roms.get_all_rom_ids()


def run(program: str, **variables: str) -> subprocess.CompletedProcess:
    clean = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "MUJOCO_GL")}
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**clean, **variables},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("variables", [{}, {"MUJOCO_GL": "nonsense"}])
def test_no_open_gl_is_touched_and_nothing_is_said(variables: dict) -> None:
    done = run(
        "import os, sys, acme_quant.environments as e\n"
        "before = os.environ.get('MUJOCO_GL')\n"
        "e.make_environment('dm_control:cartpole:balance', seed=0).reset()\n"
        "assert os.environ.get('MUJOCO_GL') == before\n"
        "assert 'glfw' not in sys.modules and 'OpenGL' not in sys.modules\n",
        **variables,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    "name, used",
    [
        ("dm_control:cartpole:balance", {"dm_control"}),
        ("gym:CartPole-v1", {"gymnasium"}),
        # ale_py itself imports gymnasium to register its games there.
        ("atari:Pong", {"ale_py", "gymnasium"}),
    ],
)
def test_only_the_library_of_the_kind_is_imported(name: str, used: set) -> None:
    done = run(
        "import sys, acme_quant.environments as e\n"
        "all = {'tensorflow', 'acme', 'jax', 'dm_control', 'gymnasium', 'ale_py'}\n"
        "assert not all & set(sys.modules)\n"
        f"e.make_environment({name!r}, seed=0)\n"
        f"assert all & set(sys.modules) == {used!r}, all & set(sys.modules)\n"
        f"e.environment_spec({name!r})\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    assert done.returncode == 0, done.stderr


def test_a_factory_of_the_current_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "my_maze.py").write_text(
        "import gymnasium\ndef make(seed):\n    return gymnasium.make('CartPole-v1')\n"
    )
    program = (
        "import sys; sys.path.remove('') if '' in sys.path else None\n"
        "from acme_quant.environments import make_environment\n"
        "make_environment('my_maze:make', seed=0).reset()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
