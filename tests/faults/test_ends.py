"""Every way a run may end: in time, with the right exit code, leaving nothing."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import time
from typing import Callable

import pytest
from training import COMMAND, END_S, SMALL, Training

Seen = Callable[[str], None]
NODES = ("learner", "quantizer", "evaluator", "replay", "counter", "coordinator")


def test_at_the_step_limit_every_node_ends(tmp_path: pathlib.Path, seen: Seen) -> None:
    flags = ("--max_actor_steps=2000", "--num_actors=4")
    began = time.time()
    with Training(tmp_path / "run", *flags) as training:
        training.wait_for(lambda: len(training.nodes()) == len(NODES) + 4)
        training.note_ports()
        code, _ = training.end(within_s=300)
        seconds = time.time() - began - training.summary()["wall_s"]
        assert code == 0 and seconds < END_S
        assert training.output().splitlines()[-1].startswith("done | ")
    seen(f"exit 0, {seconds:.1f} s after the limit, no process, no port")


def test_a_run_of_one_step_ends_well(tmp_path: pathlib.Path, seen: Seen) -> None:
    with Training(tmp_path / "run", "--max_actor_steps=1") as training:
        code, _ = training.end(within_s=300)
        assert code == 0 and training.summary()["exit_code"] == 0
        assert training.output().splitlines()[-1].startswith("done | ")
    seen("exit 0, summary printed, no kill message")


@pytest.mark.parametrize(
    "number,code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_a_signal_saves_and_ends(
    tmp_path: pathlib.Path, seen: Seen, number: int, code: int
) -> None:
    flags = ("--checkpoint_every_s=600",)
    with Training(tmp_path / "run", *flags) as training:
        training.wait_for(lambda: training.last("learner", "learner_steps") >= 100)
        assert not training.checkpoints()
        training.send("launcher", number)
        got, seconds = training.end()
        assert got == code
        assert training.checkpoints() == [1]
    seen(f"exit {code} in {seconds:.1f} s, checkpoint saved")


@pytest.mark.parametrize("after_s", [0.5, 3.0, 8.0, 16.0])
def test_ctrl_c_during_start_up_ends(
    tmp_path: pathlib.Path, seen: Seen, after_s: float
) -> None:
    with Training(tmp_path / "run") as training:
        time.sleep(after_s)
        training.send("launcher", signal.SIGINT)
        code, seconds = training.end()
        assert code == 130
        assert "Traceback" not in training.output()
    seen(f"exit 130 in {seconds:.1f} s")


def test_ctrl_c_during_an_evaluation_ends(tmp_path: pathlib.Path, seen: Seen) -> None:
    flags = ("--evaluate_every=100", "--evaluation_episodes=1000000")
    with Training(tmp_path / "run", *flags) as training:
        training.wait_until_it_learns(learner_steps=300)
        training.send("launcher", signal.SIGINT)
        code, seconds = training.end()
        assert code == 130
    seen(f"exit 130 in {seconds:.1f} s")


def test_a_second_ctrl_c_ends_at_once(tmp_path: pathlib.Path, seen: Seen) -> None:
    with Training(tmp_path / "run") as training:
        training.wait_until_it_learns()
        training.send("launcher", signal.SIGINT)
        time.sleep(0.2)
        training.send("launcher", signal.SIGINT)
        code, seconds = training.end()
        assert code == 130 and seconds < 3.0
    seen(f"exit 130 in {seconds:.1f} s")


def test_nodes_die_with_a_killed_launcher(tmp_path: pathlib.Path, seen: Seen) -> None:
    with Training(tmp_path / "run") as training:
        training.wait_until_it_learns()
        training.send("launcher", signal.SIGKILL)
        code, _ = training.end()
        assert code == -signal.SIGKILL
    seen("no process and no port 2 s after the launcher's death")


@pytest.mark.parametrize(
    "flags,words",
    [
        (
            ("--batch_size=256", "--min_replay_size=100", "--max_replay_size=200"),
            "256 > 200",
        ),
        (("--no_such_flag=3",), "no_such_flag"),
        (("--epsilon=0.1",), "change nothing"),
    ],
    ids=["replay sizes", "unknown flag", "unused flag"],
)
def test_what_cannot_run_is_refused_before_any_process(
    tmp_path: pathlib.Path, seen: Seen, flags: tuple[str, ...], words: str
) -> None:
    with Training(tmp_path / "run", *flags) as training:
        code, _ = training.end(within_s=120)
        assert code == 2 and words in training.output()
        assert not (tmp_path / "run" / "logs").exists()
    seen(f"exit 2: {training.output().strip().splitlines()[-1]}")


def test_flags_of_a_file_reach_the_nodes(tmp_path: pathlib.Path, seen: Seen) -> None:
    file = tmp_path / "flags"
    file.write_text("--max_actor_steps=300\n--quantizer=float32\n--sigma=0.25\n")
    with Training(tmp_path / "run", f"--flagfile={file}") as training:
        code, _ = training.end(within_s=300)
        assert code == 0
        assert '"quantizer": "float32"' in (tmp_path / "run/config.json").read_text()
    seen("exit 0; the nodes run with the file's flags")


def test_a_second_run_in_one_folder_is_refused(
    tmp_path: pathlib.Path, seen: Seen
) -> None:
    with Training(tmp_path / "run") as first:
        first.wait_until_it_learns()
        with Training(tmp_path / "other", "--max_actor_steps=300") as other:
            command = [str(COMMAND), "train", f"--workdir={first.workdir}", *SMALL[1:]]
            second = subprocess.run(command, capture_output=True, text=True)
            assert second.returncode == 2
            assert f"pid {first.process.pid} " in second.stderr
            code, _ = other.end(within_s=300)
            assert code == 0
        before = first.steps()
        first.wait_for(lambda: first.steps() > before)
        first.send("launcher", signal.SIGINT)
        assert first.end()[0] == 130
    seen("the second: exit 2 with the pid of the first; another folder: exit 0")
