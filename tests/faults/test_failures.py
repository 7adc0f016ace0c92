"""Nodes that die, stop or hang, and environments that fail, in a run that learns."""

from __future__ import annotations

import os
import pathlib
import signal
import time
from typing import Callable

import pytest
from fault_environments import ONCE
from training import Training, stop_for

Seen = Callable[[str], None]


@pytest.mark.parametrize("node", ["learner", "quantizer", "replay", "counter"])
def test_a_killed_node_ends_the_run_and_is_named(
    tmp_path: pathlib.Path, seen: Seen, node: str
) -> None:
    with Training(tmp_path / "run") as training:
        training.wait_until_it_learns()
        training.send(node, signal.SIGKILL)
        code, seconds = training.end()
        assert code == 1
        assert f"node {node} was killed by signal 9" in training.output()
        assert f"logs/{node}.log" in training.output()
    seen(f"exit 1 in {seconds:.1f} s: node {node} was killed by signal 9")


def test_a_killed_actor_is_started_again(tmp_path: pathlib.Path, seen: Seen) -> None:
    with Training(tmp_path / "run", "--num_actors=4") as training:
        training.wait_until_it_learns()
        training.send("actor_2", signal.SIGKILL)
        training.wait_for(lambda: "3 of 4 actors live" in training.output())
        back_s = training.wait_for(lambda: "4 of 4 actors live" in training.output())
        count = len(training.rows("actor_2"))
        training.wait_for(lambda: len(training.rows("actor_2")) > count)
        training.send("launcher", signal.SIGINT)
        assert training.end()[0] == 130
        assert "4 of 4" in (training.workdir / "logs/launcher.log").read_text()
    seen(f"training went on; the actor was started again after {back_s:.1f} s")


def test_an_actor_that_always_dies_ends_the_run(
    tmp_path: pathlib.Path, seen: Seen
) -> None:
    flags = ("--env=fault_environments:kills_its_process", "--num_actors=1")
    with Training(tmp_path / "run", *flags, "--max_actor_restarts=2") as training:
        code, seconds = training.end(within_s=300)
        output = training.output()
        assert code == 1 and "it died 3 times within 10 minutes" in output
        assert output.count("is started again in") == 2
    seen("exit 1 after 2 restarts: actor_0 died 3 times within 10 minutes")


def test_with_actor_failures_stop_a_dead_actor_ends_the_run(
    tmp_path: pathlib.Path, seen: Seen
) -> None:
    with Training(tmp_path / "run", "--actor_failures=stop") as training:
        training.wait_until_it_learns()
        training.send("actor_1", signal.SIGKILL)
        code, seconds = training.end()
        assert code == 1 and "node actor_1 was killed" in training.output()
    seen(f"exit 1 in {seconds:.1f} s: node actor_1 was killed by signal 9")


@pytest.mark.parametrize("node", ["quantizer", "learner"])
def test_a_stopped_node_is_waited_for(
    tmp_path: pathlib.Path, seen: Seen, node: str
) -> None:
    with Training(tmp_path / "run") as training:
        training.wait_until_it_learns()
        stop_for(training, node, 30.0)
        before = training.steps()
        os.kill(training.nodes()[node], signal.SIGSTOP)
        time.sleep(30.0)
        during = training.steps() - before
        stale = training.last("actor_0", "staleness_seconds")
        os.kill(training.nodes()[node], signal.SIGCONT)
        versions = training.last("actor_0", "policy_version")
        back_s = training.wait_for(
            lambda: training.last("actor_0", "policy_version") > versions
        )
        training.send("launcher", signal.SIGINT)
        assert training.end()[0] == 130
        # Without the learner, actors go as far as the rate limiter lets them.
        assert during > 0 or node == "learner"
    seen(
        f"{during:.0f} steps in the last 30 s of the stop, staleness {stale:.0f} s; "
        f"newer policies {back_s:.1f} s after it"
    )


def test_a_stopped_replay_is_waited_for(tmp_path: pathlib.Path, seen: Seen) -> None:
    with Training(tmp_path / "run") as training:
        training.wait_until_it_learns()
        stop_for(training, "replay", 60.0)
        before = training.last("learner", "learner_steps")
        steps = training.steps()
        back_s = training.wait_for(
            lambda: (
                training.last("learner", "learner_steps") > before + 20
                and training.steps() > steps + 100
            )
        )
        training.send("launcher", signal.SIGINT)
        assert training.end()[0] == 130
    seen(f"the run paused, and went on {back_s:.1f} s after the stop")


def test_the_run_ends_while_replay_is_stopped(
    tmp_path: pathlib.Path, seen: Seen
) -> None:
    with Training(tmp_path / "run") as training:
        training.wait_until_it_learns()
        training.send("replay", signal.SIGSTOP)
        time.sleep(2.0)
        training.send("launcher", signal.SIGINT)
        code, seconds = training.end()
        assert code == 130
    seen(f"exit 130 in {seconds:.1f} s")


@pytest.mark.parametrize("kind", ["diverges", "nan"])
def test_a_failed_episode_is_dropped_and_counted(
    tmp_path: pathlib.Path, seen: Seen, kind: str
) -> None:
    flags = (f"--env=fault_environments:{kind}_at_random", "--max_actor_steps=3000")
    with Training(tmp_path / "run", *flags) as training:
        code, _ = training.end(within_s=300)
        assert code == 0, training.output()
        rows = training.rows("learner")
        failed = float(rows[-1].get("actor_failed_episodes", 0) or 0)
        log = (training.workdir / "logs/actor_0.log").read_text()
        assert "An episode failed and is left" in log
        counts = training.summary()
        failed = counts["failed_episodes"]
        assert failed > 10
    seen(f"exit 0 after {counts['actor_steps']} steps, {failed} episodes failed")


@pytest.mark.parametrize(
    "env,words",
    [
        ("raises_from_500", "RuntimeError: the robot fell off the table"),
        ("nan_from_200", "observation is not finite"),
    ],
)
def test_an_environment_that_fails_for_good_ends_the_run(
    tmp_path: pathlib.Path, seen: Seen, env: str, words: str
) -> None:
    flags = (f"--env=fault_environments:{env}", "--max_actor_restarts=1")
    with Training(tmp_path / "run", *flags) as training:
        code, _ = training.end(within_s=300)
        assert code == 1
        last = training.output()
        assert words in last and "node actor_" in last and "logs/actor_" in last
    seen(f"exit 1: node actor_N exited with 1: ... {words}")


def test_a_step_that_hangs_costs_its_process_only(
    tmp_path: pathlib.Path, seen: Seen
) -> None:
    flags = ("--env=fault_environments:hangs_once", "--step_timeout_s=3")
    env = {ONCE: str(tmp_path / "once")}
    flags += ("--max_actor_steps=3000",)
    with Training(tmp_path / "run", *flags, env=env) as training:
        code, _ = training.end(within_s=300)
        assert code == 0
        assert "EnvironmentHangs" in training.output()
        assert training.summary()["failed_episodes"] == 1
    seen("the actor's process ended after 3 s and was started again; exit 0")


@pytest.mark.parametrize("value", [None, "nonsense"])
def test_state_only_training_touches_no_opengl(
    tmp_path: pathlib.Path, seen: Seen, value: str | None
) -> None:
    env = {"MUJOCO_GL": value} if value else {}
    flags = ("--env=dm_control:cartpole:balance", "--max_actor_steps=300")
    with Training(tmp_path / "run", *flags, env=env) as training:
        code, _ = training.end(within_s=300)
        assert code == 0
        logs = [p.read_text() for p in (training.workdir / "logs").glob("*.log")]
        assert not any("GLFW" in log for log in logs)
    seen("exit 0, no word of GLFW in any log")
