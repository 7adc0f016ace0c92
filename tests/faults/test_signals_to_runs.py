"""Signals as schedulers, terminals and impatient people send them, to real runs."""

from __future__ import annotations

import os
import pathlib
import random
import signal
import subprocess
import sys
import time
from typing import Callable

import psutil
import pytest
from training import COMMAND, SMALL, Training

Seen = Callable[[str], None]
ENDING = ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1")


def to_all(process: subprocess.Popen, number: int) -> None:
    """Sends a signal to a command and all that descends from it, children first."""
    family = psutil.Process(process.pid).children(recursive=True)
    for member in [*family[::-1], psutil.Process(process.pid)]:
        try:
            member.send_signal(number)
        except psutil.NoSuchProcess:
            continue


@pytest.mark.parametrize("name", ENDING)
def test_a_signal_to_all_saves_as_one_to_the_launcher(
    tmp_path: pathlib.Path, seen: Seen, name: str
) -> None:
    flags = ("--checkpoint_every_s=600",)
    with Training(tmp_path / "run", *flags) as training:
        training.wait_for(lambda: training.last("learner", "learner_steps") >= 100)
        assert not training.checkpoints()
        training.note_ports()
        to_all(training.process, signal.Signals[name])
        code, seconds = training.end()
        assert code == 128 + signal.Signals[name]
        assert training.checkpoints() == [1]
        assert training.summary()["exit_code"] == code
        assert f"ended by {name}" in training.output()
    seen(f"exit {code} in {seconds:.1f} s, checkpoint saved")


@pytest.mark.parametrize("flag", ["--num_actors=0", "--lp_launch_type=local_mt"])
@pytest.mark.parametrize("name", ["SIGHUP", "SIGTERM"])
def test_a_run_in_one_process_ends_by_signals_too(
    tmp_path: pathlib.Path, seen: Seen, flag: str, name: str
) -> None:
    with Training(tmp_path / "run", flag, "--checkpoint_every_s=600") as training:
        training.wait_for(lambda: training.last("learner", "learner_steps") >= 100)
        to_all(training.process, signal.Signals[name])
        code, seconds = training.end()
        assert code == 128 + signal.Signals[name]
        assert training.checkpoints() == [1]
    seen(f"exit {code} in {seconds:.1f} s, checkpoint saved")


def test_a_second_signal_at_a_random_moment_leaves_at_once(
    tmp_path: pathlib.Path, seen: Seen
) -> None:
    rng = random.Random(0)
    slowest = 0.0
    for _ in range(int(os.environ.get("FAULTS_TIMES", "6"))):
        with Training(tmp_path / "run", "--fresh") as training:
            training.wait_until_it_learns()
            training.send("launcher", signal.SIGTERM)
            time.sleep(rng.uniform(0.12, 2.5))
            training.send("launcher", signal.SIGTERM)
            code, seconds = training.end()
            assert code == 143
            slowest = max(slowest, seconds)
    assert slowest < 3.0
    seen(f"exit 143, the slowest after {slowest:.1f} s")


def test_timeout_has_a_run_saved(tmp_path: pathlib.Path, seen: Seen) -> None:
    folder = tmp_path / "run"
    command = [str(COMMAND), "train", f"--workdir={folder}", *SMALL]
    here = pathlib.Path(__file__).parent
    done = subprocess.run(
        ["timeout", "40", *command],
        env={**os.environ, "PYTHONPATH": str(here)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 124 and "ended by SIGTERM" in done.stderr
    assert (folder / "summary.json").exists()
    seen("exit 124 of `timeout`, ended by SIGTERM, saved")


def test_what_an_environment_started_ends_with_its_actor(
    tmp_path: pathlib.Path, seen: Seen
) -> None:
    pids = tmp_path / "children"
    flags = ("--env=fault_environments:hangs_with_a_child", "--step_timeout_s=3")
    env = {"FAULT_ONCE": str(tmp_path / "once"), "FAULT_CHILDREN": str(pids)}
    flags += ("--max_actor_steps=1000", "--evaluate_every=0")
    with Training(tmp_path / "run", *flags, env=env) as training:
        training.wait_for(lambda: "started again as" in training.output())
        # One constructor of the launcher's, two actors, and the one started again.
        started = [int(pid) for pid in pids.read_text().split()]
        assert sum(map(psutil.pid_exists, started)) <= 3
        code, _ = training.end(within_s=300)
        assert code == 0
        started = [int(pid) for pid in pids.read_text().split()]
    assert not any(map(psutil.pid_exists, started))
    seen(f"exit 0; none of {len(started)} children left")


def test_nodes_bear_their_names(tmp_path: pathlib.Path, seen: Seen) -> None:
    with Training(tmp_path / "run") as training:
        training.wait_until_it_learns()
        log = (tmp_path / "run" / "logs" / "launcher.log").read_text()
        for name, pid in training.nodes().items():
            title = " ".join(psutil.Process(pid).cmdline())
            assert title.startswith(f"acme-quant: {name} of "), title
            assert f"node {name} is process {pid}\n" in log
        training.send("launcher", signal.SIGTERM)
        assert training.end()[0] == 143
    seen("`ps` shows acme-quant: learner of WORKDIR; pids in launcher.log")


def test_an_evaluator_that_does_not_answer_is_named(
    tmp_path: pathlib.Path, seen: Seen
) -> None:
    # It answers at every step, but is never through.
    flags = ("--evaluation_episodes=1000000", "--step_timeout_s=3")
    with Training(tmp_path / "run", *flags) as training:
        training.wait_for(lambda: "no evaluation for" in training.output())
        training.send("launcher", signal.SIGINT)
        assert training.end()[0] == 130
        assert training.summary()["overdue_evaluations"] >= 1
        assert "evaluations overdue" in training.output()
    log = (tmp_path / "run" / "logs" / "launcher.log").read_text()
    assert "no evaluation for" in log
    seen("named on the console, in launcher.log and in the summary")


@pytest.mark.parametrize("whom", ["command", "all"])
def test_a_comparison_ends_its_run_in_order(
    tmp_path: pathlib.Path, seen: Seen, whom: str
) -> None:
    folder = tmp_path / "compared"
    command = [str(COMMAND), "compare", f"--workdir={folder}", "--seeds=1", *SMALL]
    command += ["--checkpoint_every_s=600", "--max_actor_steps=100000"]
    here = pathlib.Path(__file__).parent
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(here)}, stdout=sys.stderr
    ) as process:
        deadline = time.monotonic() + 120
        while not list(folder.glob("runs/**/csv/learner.csv")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.2)
        (csv,) = folder.glob("runs/**/csv/learner.csv")
        run = csv.parent.parent
        time.sleep(3.0)
        if whom == "all":
            to_all(process, signal.SIGTERM)
        else:
            process.send_signal(signal.SIGTERM)
        assert process.wait(90) == 143
    assert [p.name for p in (run / "checkpoints").glob("[0-9]*")]
    seen("exit 143, the run under way saved")
