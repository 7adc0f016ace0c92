"""Checkpoints: whole or not at all, and what is damaged is found."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from acme_quant.records import checkpoint, checkpoints
from acme_quant.records.checkpoint import Mismatch
from acme_quant.records.checkpoints import (
    BackgroundSaver,
    Checkpoints,
    NoCheckpoint,
    SaveFailed,
)

KILLS = 5
ARRAYS_OF_ZEROS = ("1", "empty")


def arrays_of(step: int) -> dict[str, np.ndarray]:
    """Every kind of array that a learner has; all follow from `step`."""
    rng = np.random.default_rng(step)
    return {
        "policy/0": rng.standard_normal((17, 64)).astype(np.float32),
        "policy/1": np.zeros(64, np.float32),
        "critic/0": rng.standard_normal((64, 300)).astype(np.float32),
        "optimizer/step": np.array(step, np.int64),
        "optimizer/empty": np.zeros((0, 3), np.float32),
        "counts": np.array([step, 2 * step], np.int32),
        "flags": np.array([True, False]),
    }


def assert_same(got: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    assert sorted(got) == sorted(want)
    for name, array in want.items():
        assert got[name].dtype == array.dtype
        np.testing.assert_array_equal(got[name], array)


def test_what_was_saved_comes_back(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "a place é with spaces"
    saved = Checkpoints(folder).save(arrays_of(3), {"learner_steps": 3}, score=1.5)
    found, arrays, damaged = Checkpoints(folder).newest_whole()
    assert (found.number, found.facts, found.score) == (1, {"learner_steps": 3}, 1.5)
    assert saved == found and damaged == []
    assert_same(arrays, arrays_of(3))


def test_the_newest_few_and_the_best_are_kept(tmp_path: pathlib.Path) -> None:
    store = Checkpoints(tmp_path, keep=2)
    for step, score in enumerate([1.0, 9.0, 2.0, None, 3.0], start=1):
        store.save(arrays_of(step), {}, score)
    assert store.numbers() == [2, 4, 5]
    assert store.best().number == 2
    assert not list(tmp_path.glob(".*"))


def test_a_reader_of_one_part_reads_that_part_alone(tmp_path: pathlib.Path) -> None:
    arrays = {
        "policy/0": np.ones((512, 512), np.float32),
        "optimizer/0": np.ones((4, 1024, 1024), np.float32),
    }
    Checkpoints(tmp_path).save(arrays, {})
    found = Checkpoints(tmp_path).open(1)
    found.read(["policy/0"])  # Whatever the library reads once.
    before = bytes_read()
    found = Checkpoints(tmp_path).open(1)
    policy = found.read(found.names("policy"))
    read = bytes_read() - before
    assert list(policy) == ["policy/0"]
    assert arrays["policy/0"].nbytes <= read <= arrays["policy/0"].nbytes + 10**6


def bytes_read() -> int:
    """Returns the bytes that this process asked the kernel for so far."""
    lines = pathlib.Path("/proc/self/io").read_text().splitlines()
    return int(lines[0].split()[1])


def files_of(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(p for p in path.rglob("*") if p.is_file())


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove"])
def test_damage_of_any_file_is_found_and_the_one_before_is_used(
    tmp_path: pathlib.Path, damage: str
) -> None:
    original = tmp_path / "original"
    Checkpoints(original).save(arrays_of(1), {})
    Checkpoints(original).save(arrays_of(2), {})
    for file in files_of(original / "000002"):
        copy = tmp_path / "copy"
        shutil.copytree(original, copy)
        harm(copy / file.relative_to(original), damage)
        found, arrays, damaged = Checkpoints(copy).newest_whole()
        # A space in a header or a missing file of zeros alters no number.
        harmless = found.number == 2
        assert harmless or "checkpoint 2" in damaged[0]
        assert_same(arrays, arrays_of(found.number))
        assert (
            not harmless
            or file.parent.name in ARRAYS_OF_ZEROS
            or file.name == ".zarray"
        )
        shutil.rmtree(copy)


def harm(file: pathlib.Path, damage: str) -> None:
    content = bytearray(file.read_bytes())
    if damage == "remove":
        file.unlink()
    elif damage == "truncate":
        file.write_bytes(content[: len(content) // 2])
    else:
        content[len(content) // 2] ^= 0x10
        file.write_bytes(content)


def test_damaged_ones_are_set_aside_and_their_number_is_not_used_again(
    tmp_path: pathlib.Path,
) -> None:
    store = Checkpoints(tmp_path)
    for step in (1, 2):
        store.save(arrays_of(step), {})
    harm(tmp_path / "000002" / checkpoint.COMMIT, "truncate")
    store.set_aside_after(1)
    assert store.numbers() == [1]
    assert store.save(arrays_of(3), {}).number == 3


def test_with_no_whole_checkpoint_the_message_says_why(tmp_path: pathlib.Path) -> None:
    with pytest.raises(NoCheckpoint, match="no whole checkpoint"):
        Checkpoints(tmp_path / "none").newest_whole()
    Checkpoints(tmp_path).save(arrays_of(1), {})
    (tmp_path / "000001" / checkpoint.COMMIT).unlink()
    with pytest.raises(NoCheckpoint, match="checkpoint 1 .* is damaged"):
        Checkpoints(tmp_path).newest_whole()
    with pytest.raises(NoCheckpoint, match=r"\(1\), got 7"):
        Checkpoints(tmp_path).open(7)


def test_another_shape_is_one_sentence(tmp_path: pathlib.Path) -> None:
    found = Checkpoints(tmp_path).save(arrays_of(1), {})
    found.check(arrays_of(2))
    other = {**arrays_of(1), "policy/0": np.zeros((5, 64), np.float32)}
    with pytest.raises(Mismatch, match=r"expected <f4 \[5, 64\] as 'policy/0'"):
        found.check(other)
    with pytest.raises(Mismatch, match="expected nothing as 'flags'"):
        found.check({k: v for k, v in arrays_of(1).items() if k != "flags"})


def test_a_full_disk_is_a_failed_save_and_leaves_the_last_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Checkpoints(tmp_path)
    store.save(arrays_of(1), {})
    monkeypatch.setattr(checkpoints, "RESERVE_BYTES", 1 << 60)
    with pytest.raises(SaveFailed, match="MB free"):
        store.save(arrays_of(2), {})
    assert store.numbers() == [1]


def test_a_failed_write_is_reported_and_leaves_nothing(tmp_path: pathlib.Path) -> None:
    store, reports = Checkpoints(tmp_path), []
    store.save(arrays_of(1), {})
    saver = BackgroundSaver(store, reports.append)
    saver.save({"text": np.array(["not", "numbers"])}, lambda: ({}, None))
    assert saver.wait(30.0)
    assert (saver.saves, saver.failures) == (0, 1)
    assert reports[0].startswith("warning: checkpoint 2 was not saved")
    assert [p.name for p in tmp_path.iterdir()] == ["000001"]


def test_a_save_in_the_background_lets_the_caller_go_on(tmp_path: pathlib.Path) -> None:
    reports, answer = [], threading.Event()
    saver = BackgroundSaver(Checkpoints(tmp_path), reports.append)

    def slow_peer() -> tuple[dict[str, int], float | None]:
        answer.wait(30.0)
        return {"learner_steps": 4}, 2.0

    assert saver.save(arrays_of(4), slow_peer)
    assert not saver.save(arrays_of(5), slow_peer), "one at a time"
    assert saver.busy and Checkpoints(tmp_path).numbers() == []
    answer.set()
    assert saver.wait(30.0)
    assert Checkpoints(tmp_path).open(1).facts == {"learner_steps": 4}
    assert "checkpoint 1 saved" in reports[0]


SAVE_FOR_EVER = """
import sys
sys.path.insert(0, sys.argv[2])
from test_checkpoint import Checkpoints, arrays_of
store = Checkpoints(sys.argv[1], keep=2)
step = store.newest_whole()[0].facts['step'] if store.numbers() else 0
while True:
    step += 1
    store.save(arrays_of(step), {'step': step})
    print(step, flush=True)
"""


def test_a_kill_at_any_moment_loses_no_committed_checkpoint(
    tmp_path: pathlib.Path,
) -> None:
    kill_while_saving(tmp_path, KILLS)


def kill_while_saving(folder: pathlib.Path, kills: int) -> None:
    """Kills a process that saves without pause, and looks at what it left."""
    rng = np.random.default_rng(0)
    here = os.path.dirname(__file__)
    script = SAVE_FOR_EVER.replace(
        "sys.argv[1]", "__import__('pathlib').Path(sys.argv[1])"
    )
    for _ in range(kills):
        command = [sys.executable, "-c", script, str(folder), here]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(rng.uniform(0.0, 0.1))
            process.send_signal(signal.SIGKILL)
            committed = [int(line) for line in process.stdout.read().split()]
        found, arrays, damaged = Checkpoints(folder).newest_whole()
        assert damaged == []
        assert found.facts["step"] >= max(committed, default=1)
        assert_same(arrays, arrays_of(found.facts["step"]))
