"""The short part of the fault suite: one run that lives through several faults.

The whole suite, a fault a run, stands in tests/faults: make faults.
"""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "faults"))
from training import COMMAND, SMALL, Training


def test_a_run_survives_a_dead_actor_and_a_kill_and_ends_on_ctrl_c(
    tmp_path: pathlib.Path,
) -> None:
    workdir = tmp_path / "a place with é"
    with Training(workdir) as first:
        first.wait_until_it_learns()
        refused = subprocess.run(
            [str(COMMAND), "train", f"--workdir={workdir}", *SMALL[1:]],
            capture_output=True,
            text=True,
        )
        assert refused.returncode == 2
        assert f"pid {first.process.pid} " in refused.stderr
        first.send("actor_1", signal.SIGKILL)
        first.wait_for(lambda: "2 of 2 actors live" in first.output())
        first.send("launcher", signal.SIGKILL)
        assert first.end()[0] == -signal.SIGKILL
    with Training(workdir) as second:
        second.wait_for(lambda: "resumes from checkpoint" in second.output())
        before = second.last("learner", "learner_steps")
        assert before > 0
        second.wait_for(lambda: second.last("learner", "learner_steps") > before)
        second.send("launcher", signal.SIGINT)
        # `make faults` holds 15 s; a busy machine that still traces may be slower.
        code, _ = second.end(within_s=30.0)
        assert code == 130
        steps = [float(row["learner_steps"]) for row in second.rows("learner")]
        assert steps == sorted(set(steps))
