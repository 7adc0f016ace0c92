"""A run whose disk is full: it goes on, ends in order, and says what is not saved."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import time

import pytest
import whole_run
from small_disks import fill, small_disk

FLAGS = (
    *whole_run.SMALL,
    "--env=gym:Pendulum-v1",
    "--max_actor_steps=3000",
    "--checkpoint_every_s=1",
    "--log_every_s=0.1",
)
KINDS = {"one process": "--num_actors=0", "processes": "--num_actors=1"}


def wait_for_rows(process: subprocess.Popen[str], path: pathlib.Path) -> None:
    while not path.exists() or path.read_text().count("\n") < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_on_a_full_disk_goes_on_and_says_what_is_not_saved(
    tmp_path: pathlib.Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    with small_disk(tmp_path / "disk", "100m") as disk:
        process = whole_run.start(disk / "run", *FLAGS, KINDS[kind])
        wait_for_rows(process, disk / "run" / "csv" / "actor_0.csv")
        fill(disk)
        done = whole_run.finish(process)
        assert done.returncode == 1, done.stdout + done.stderr
        last = done.stdout.splitlines()[-1]
        assert last.startswith("not saved: ") and "learnt" in last
        assert "rows lost: " in last
        assert "Traceback" not in done.stdout + done.stderr
    assert os.listdir(tmp_path / "tmp") == []


def test_rows_that_are_lost_for_a_while_are_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_disk(tmp_path / "disk", "150m") as disk:
        flags = (*FLAGS, "--num_actors=0", "--max_actor_steps=6000")
        process = whole_run.start(disk / "run", *flags)
        wait_for_rows(process, disk / "run" / "csv" / "actor_0.csv")
        ballast = fill(disk)
        time.sleep(1.0)
        ballast.unlink()
        done = whole_run.finish(process)
        assert done.returncode == 0, done.stdout + done.stderr
        summary = json.loads((disk / "run" / "summary.json").read_text())
        assert summary["not_saved"] == [] and summary["lost_rows"]["evaluator.csv"]
        assert "done | rows lost: " in done.stdout


def test_a_disk_that_is_full_before_the_start_is_one_sentence(
    tmp_path: pathlib.Path,
) -> None:
    with small_disk(tmp_path / "disk", "1m") as disk:
        (disk / "run").mkdir()
        fill(disk)
        done = whole_run.finish(whole_run.start(disk / "run", *FLAGS))
    assert done.returncode == 2
    assert "No space left" in done.stderr and len(done.stderr.splitlines()) == 1
