"""Killed and damaged runs go on where the last whole checkpoint was."""

from __future__ import annotations

import json
import pathlib
import signal
import sys
from typing import Callable

import numpy as np
import pytest
from training import Training

from acme_quant.records.checkpoints import Checkpoints

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "records"))
from test_checkpoint import harm, kill_while_saving

Seen = Callable[[str], None]
KILLS = 40


def check_rows(training: Training) -> None:
    """Asserts that every file of rows goes on without a gap or a double."""
    for node in ("learner", "evaluator", "quantizer"):
        steps = [float(row["learner_steps"]) for row in training.rows(node)]
        assert steps == sorted(steps), node
        if node != "quantizer":
            assert len(set(steps)) == len(steps), node
    for node in ("actor_0", "actor_1"):
        rows = training.rows(node)
        for column in ("actor_steps", "policy_version", "wall_s"):
            numbers = [float(row[column]) for row in rows]
            assert numbers == sorted(numbers), (node, column)
    versions = [float(row["policy_version"]) for row in training.rows("quantizer")]
    started = [v for v in versions if v]
    assert started == sorted(started)


def facts(training: Training, number: int) -> dict:
    """Returns the facts of a checkpoint."""
    return Checkpoints(training.workdir / "checkpoints").open(number).facts


def test_a_killed_run_resumes_where_it_was(tmp_path: pathlib.Path, seen: Seen) -> None:
    workdir = tmp_path / "a place with é"
    with Training(workdir) as first:
        first.wait_for(lambda: first.steps() >= 2000)
        first.wait_for(first.checkpoints)
        first.send("launcher", signal.SIGKILL)
        assert first.end()[0] == -signal.SIGKILL
        newest = first.checkpoints()[-1]
        counts = facts(first, newest)["counts"]
    with Training(workdir, "--max_actor_steps=4000") as second:
        code, _ = second.end(within_s=300)
        output = second.output()
        assert code == 0, output
        assert f"resumes from checkpoint {newest}: " in output
        assert f"{counts['actor_steps']:.0f} actor steps" in output
        assert "replay fills anew" in output
        end = second.summary()
        assert end["actor_steps"] >= 4000
        assert end["learner_steps"] > counts["learner_steps"]
        check_rows(second)
        last = second.checkpoints()[-1]
        arrays = Checkpoints(workdir / "checkpoints").open(last).read()
        steps = facts(second, last)["counts"]["learner_steps"]
        # Every learner step counted once, in the learner and in both optimizers.
        near = arrays["learner/num_steps/000"]
        assert steps <= near <= steps + 2
    seen(
        f"from {counts['actor_steps']:.0f} to {end['actor_steps']} steps, learner "
        f"{counts['learner_steps']} to {steps}; rows without gap or double"
    )


@pytest.mark.parametrize("damage", ["truncate", "flip", "remove"])
def test_a_damaged_newest_checkpoint_falls_back(
    tmp_path: pathlib.Path, seen: Seen, damage: str
) -> None:
    with Training(tmp_path / "run") as first:
        first.wait_until_it_learns()
        first.wait_for(lambda: len(first.checkpoints()) >= 3)
        first.send("launcher", signal.SIGKILL)
        first.end()
        before, newest = first.checkpoints()[-2:]
        folder = first.workdir / "checkpoints" / f"{newest:06d}"
        files = [p for p in folder.rglob("0.0") if any(p.read_bytes())]
        harm(files[0], damage)
    with Training(tmp_path / "run", "--max_actor_steps=1") as second:
        code, _ = second.end(within_s=120)
        output = second.output()
        assert code == 0 and f"resumes from checkpoint {before}" in output
        assert f"checkpoint {newest} in" in output and "is damaged" in output
    seen(f"checkpoint {newest} is damaged, said so; resumed from {before}")


def test_kills_during_saves_lose_no_committed_checkpoint(
    tmp_path: pathlib.Path, seen: Seen
) -> None:
    kill_while_saving(tmp_path, KILLS)
    seen(f"{KILLS} kills, {KILLS} resumes at the last committed step or later")


def test_every_flip_of_a_byte_is_found(tmp_path: pathlib.Path, seen: Seen) -> None:
    store = Checkpoints(tmp_path)
    rng = np.random.default_rng(0)
    arrays = {f"net/{i}": rng.standard_normal((40, 30)) for i in range(4)}
    store.save(arrays, {})
    store.save({n: a + 1 for n, a in arrays.items()}, {})
    files = [p for p in (tmp_path / "000002").rglob("*") if p.is_file()]
    found = 0
    for trial in range(100):
        file = files[trial % len(files)]
        content = bytearray(file.read_bytes())
        place = int(rng.integers(len(content)))
        old = content[place]
        content[place] ^= 1 << int(rng.integers(8))
        file.write_bytes(content)
        checkpoint, got, damaged = store.newest_whole()
        shift = checkpoint.number - 1
        for name, array in arrays.items():
            np.testing.assert_array_equal(got[name], array + shift)
        found += bool(damaged)
        content[place] = old
        file.write_bytes(content)
    seen(f"100 flips: {found} found and left out, the others altered no number")


def test_fresh_keeps_the_old_run_aside(tmp_path: pathlib.Path, seen: Seen) -> None:
    with Training(tmp_path / "run", "--max_actor_steps=300") as first:
        assert first.end(within_s=300)[0] == 0
    with Training(tmp_path / "run", "--max_actor_steps=300", "--fresh") as second:
        assert second.end(within_s=300)[0] == 0
        assert "starts anew" in second.output()
        old = json.loads((tmp_path / "run/previous-1/summary.json").read_text())
        assert old["exit_code"] == 0
        assert float(second.rows("actor_0")[0]["actor_steps"]) < 200
    seen("the old run's files are in previous-1")


def test_another_policy_or_environment_is_one_sentence(
    tmp_path: pathlib.Path, seen: Seen
) -> None:
    with Training(tmp_path / "run", "--max_actor_steps=300") as first:
        assert first.end(within_s=300)[0] == 0
    for flag, words in (
        ("--policy_layers=32", "expected a policy of shapes"),
        ("--env=fault_environments:nan_at_random", "expected --env="),
    ):
        with Training(tmp_path / "run", flag) as second:
            code, _ = second.end(within_s=120)
            assert code == 2 and words in second.output()
            assert len(second.output().strip().splitlines()) == 1
    seen("exit 2, one sentence with both shapes or both names")


def test_a_replay_that_is_saved_comes_back(tmp_path: pathlib.Path, seen: Seen) -> None:
    with Training(tmp_path / "run", "--checkpoint_replay") as first:
        first.wait_until_it_learns()
        first.send("launcher", signal.SIGKILL)
        first.end()
    with Training(tmp_path / "run", "--checkpoint_replay") as second:
        log = second.workdir / "logs" / "replay.log"
        second.wait_for(lambda: "replay came back with" in log.read_text())
        assert "replay was saved with" in second.output()
        before = second.last("learner", "learner_steps")
        second.wait_for(lambda: second.last("learner", "learner_steps") > before)
        items = facts(second, second.checkpoints()[-1])["replay"]["items"]
        second.send("launcher", signal.SIGINT)
        assert second.end()[0] == 130
    seen(f"replay came back; {items} items in the next checkpoint")
