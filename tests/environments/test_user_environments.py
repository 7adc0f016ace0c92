"""Faults that people's own environments bring: names, imports, resets, numbers."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from acme_quant import environments
from acme_quant.environments import edge, gym

MODULE = """
import gymnasium

def make():
    return gymnasium.make("CartPole-v1")
"""
ASK = """
import sys
from acme_quant import environments
try:
    environments.make_environment(sys.argv[1], seed=0)
    print("made of", sys.modules[sys.argv[1].partition(":")[0]].__file__)
except environments.UnsupportedEnvironment as error:
    print("unsupported:", error)
except environments.UnknownEnvironment as error:
    print("unknown:", error)
"""


def ask(folder: pathlib.Path, name: str, path: pathlib.Path | None = None) -> str:
    """Returns what becomes of an environment's name in `folder`, as a command asks."""
    # A console script's own folder is first, and not that in which it is typed.
    code = f"import sys; sys.path.pop(0)\n{ASK}"
    env = {**os.environ, "PYTHONPATH": str(path)} if path else dict(os.environ)
    done = subprocess.run(
        [sys.executable, "-c", code, name],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert not done.returncode, done.stderr
    return done.stdout.strip()


class Toy(gymnasium.Env):
    """One step an episode; resets with a seed fail as often as asked for."""

    observation_space: Any = spaces.Box(-1, 1, (2,))
    action_space: Any = spaces.Discrete(2)

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.seeds.append(seed)
        if len(self.seeds) <= self.failures:
            raise RuntimeError(f"no maze for the seed {seed}")
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        return self.observation_space.sample(), 0.0, True, False, {}


def serve(toy: gymnasium.Env, seed: int = 7) -> edge.EdgeEnvironment:
    return edge.EdgeEnvironment(gym.adapt(toy, "toy", seed))


@pytest.mark.parametrize(
    "files,name,words",
    [
        ({"pack/__init__.py": "import absent_thing"}, "pack.tasks:make", "pack"),
        ({"pack/__init__.py": "1 / 0"}, "pack.tasks:make", "ZeroDivisionError"),
        ({"pack/__init__.py": "raise SystemExit"}, "pack.tasks:make", "SystemExit"),
        ({"alone.py": "import absent_thing"}, "alone:make", "absent_thing"),
        ({"games.py": "import absent_thing"}, "gym:games:Maze-v0", "absent_thing"),
    ],
)
def test_a_package_whose_import_fails_is_told_from_one_that_is_not_there(
    tmp_path: pathlib.Path, files: dict[str, str], name: str, words: str
) -> None:
    for file, text in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(text)
    answer = ask(tmp_path, name)
    assert answer.startswith("unsupported:") and words in answer, answer


@pytest.mark.parametrize(
    "name", ["absent:make", "absent.tasks:make", "gym:absent:A-v0"]
)
def test_a_module_that_is_not_there_is_unknown(
    tmp_path: pathlib.Path, name: str
) -> None:
    assert ask(tmp_path, name).startswith("unknown:")


def test_the_users_module_comes_before_an_installed_one_of_its_name(
    tmp_path: pathlib.Path,
) -> None:
    own, installed = tmp_path / "own", tmp_path / "installed"
    for folder in (own, installed):
        folder.mkdir()
    (own / "example.py").write_text(MODULE)
    (installed / "example.py").write_text("")
    assert ask(own, "example:make", installed) == f"made of {own / 'example.py'}"
    answer = ask(own, "example:mak", installed)
    assert str(own / "example.py") in answer and "nearest: make" in answer


def test_modules_are_looked_for_where_the_process_started(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "start.py").write_text(
        "import os\nfrom acme_quant import environments\nos.chdir('/')\n"
        "environments.make_environment('mine:make', seed=0)\n"
    )
    code = "import runpy, sys; sys.path.pop(0); runpy.run_path('start.py')"
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=60)


def test_a_reset_that_fails_is_tried_again_with_another_seed() -> None:
    toy, again = Toy(failures=3), Toy(failures=3)
    for environment in (serve(toy), serve(again)):
        for _ in range(3):
            with pytest.raises(environments.EpisodeFailed):
                environment.reset()
        environment.reset()
        environment.reset()
    assert len(set(toy.seeds[:4])) == 4 and toy.seeds[0] == 7
    assert toy.seeds[4] is None
    assert toy.seeds == again.seeds


def test_a_wide_one_hot_takes_one_row_and_an_absurd_one_is_refused() -> None:
    wide, absurd = Toy(), Toy()
    wide.observation_space = spaces.Discrete(100_000, start=5)
    row = serve(wide).reset().observation
    assert row.shape == (100_000,) and row.sum() == 1.0
    absurd.observation_space = spaces.Dict({"cell": spaces.Discrete(1_000_000)})
    with pytest.raises(environments.UnsupportedEnvironment, match="observation.cell"):
        serve(absurd)


class Paid(dm_env.Environment):
    """Pays what it is told to, and fails to close."""

    def __init__(self, reward: float) -> None:
        self._reward = reward

    def reset(self) -> dm_env.TimeStep:
        return dm_env.restart(np.zeros(1, np.float32))

    def step(self, action: Any) -> dm_env.TimeStep:
        return dm_env.transition(self._reward, np.zeros(1, np.float32))

    def observation_spec(self) -> specs.Array:
        return specs.Array((1,), np.float32, "state")

    def action_spec(self) -> specs.DiscreteArray:
        return specs.DiscreteArray(2)

    def close(self) -> None:
        raise OSError("the server has gone")


@pytest.mark.parametrize("reward", [1e39, -1e39, 3.4028235677973366e38, float("nan")])
def test_a_reward_that_is_not_finite_in_float32_fails_the_episode(
    reward: float,
) -> None:
    environment = edge.EdgeEnvironment(Paid(reward))
    environment.reset()
    with pytest.raises(environments.EpisodeFailed, match="reward"):
        environment.step(0)


def test_the_largest_float32_is_a_reward() -> None:
    largest = np.finfo(np.float32).max
    environment = edge.EdgeEnvironment(Paid(3.4028235677973362e38))
    environment.reset()
    assert environment.step(0).reward == largest


def test_a_close_that_fails_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    edge.EdgeEnvironment(Paid(0.0)).close()
    assert "the server has gone" in caplog.text
