"""Episodes of `acme-quant evaluate`: where they run, from what state, to what end."""

from __future__ import annotations

import pathlib
import sys

import numpy as np
import psutil
import pytest

from acme_quant.agents import d4pg
from acme_quant.launch.commands import episodes
from acme_quant.launch.settings import user_process
from acme_quant.launch.settings.config import Run, RunConfig

FIXTURES = pathlib.Path(__file__).parents[2] / "fixtures"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Returns the files of two policies that act differently."""
    import sonnet as snt
    import tensorflow as tf
    from dm_env import specs

    from acme_quant import quantize_policy

    found = {}
    for name in ("one", "two"):
        tf.random.set_seed(len(found))
        module = snt.nets.MLP([8, 2])
        spec = specs.Array((3,), np.float32, "state")
        made = quantize_policy(module, spec)
        found[name] = str(tmp_path_factory.mktemp("policies") / f"{name}.aq")
        made.save(found[name])
    return found


@pytest.fixture
def diary(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Returns the file that says what happened to environments."""
    monkeypatch.setenv("PYTHONPATH", str(FIXTURES))
    monkeypatch.setenv("UNRULY_DIARY", str(tmp_path / "diary"))
    return tmp_path / "diary"


def run_of(kind: str, **settings: object) -> Run:
    env = f"unruly_environments:{kind}"
    return Run(RunConfig(workdir="x", env=env, **settings), d4pg.Config())


def lines(diary: pathlib.Path, word: str) -> list[list[str]]:
    rows = [line.split() for line in diary.read_text().splitlines()]
    return [row[1:] for row in rows if row[0] == word]


def test_all_policies_meet_the_same_initial_states(
    files: dict[str, str], diary: pathlib.Path
) -> None:
    with episodes.EpisodesProcess(run_of("tame"), files, 3, seed=5) as process:
        scores = [process.score(), process.score()]
    assert all(score.lengths.tolist() == [20, 20, 20] for score in scores)
    states = [state for state, _ in lines(diary, "state")]
    assert states[:3] == states[3:] and len(set(states)) == 3


def test_every_environment_is_closed_and_its_process_gone(
    files: dict[str, str], diary: pathlib.Path
) -> None:
    with episodes.EpisodesProcess(run_of("stays"), files, 1, seed=0) as process:
        process.score(), process.score()
    assert len(lines(diary, "made")) == len(lines(diary, "closed")) == 2
    assert not any(psutil.pid_exists(int(pid)) for (pid,) in lines(diary, "made"))
    assert "unruly_environments" not in sys.modules


def test_an_episode_without_an_end_is_cut_and_counted(
    files: dict[str, str], diary: pathlib.Path
) -> None:
    run = run_of("endless", evaluation_max_steps=50)
    with episodes.EpisodesProcess(run, files, 2, seed=0) as process:
        score = process.score()
    assert score.lengths.tolist() == [50, 50] and score.cut == 2


def test_a_step_that_hangs_is_one_sentence(
    files: dict[str, str], diary: pathlib.Path
) -> None:
    run = run_of("hangs_in_a_step", step_timeout_s=1.0)
    with episodes.EpisodesProcess(run, files, 1, seed=0) as process:
        with pytest.raises(user_process.Failed, match="EnvironmentHangs"):
            process.score()


@pytest.mark.parametrize("kind", ["dies", "crashes"])
def test_an_environment_that_ends_its_process_is_one_sentence(
    files: dict[str, str], diary: pathlib.Path, kind: str
) -> None:
    with episodes.EpisodesProcess(run_of(kind), files, 1, seed=0) as process:
        with pytest.raises(user_process.Failed, match="its process"):
            process.score()
