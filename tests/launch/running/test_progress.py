from __future__ import annotations

import io

from acme_quant.launch.running.progress import Progress, Status


def status(steps: int, wall_s: float) -> Status:
    return Status(
        wall_s=wall_s,
        actor_steps=steps,
        max_actor_steps=1000,
        learner_steps=7,
        policy_version=3,
        evaluation_return=12.34,
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_line_tells_share_speed_return_version_and_time_left() -> None:
    line = status(500, 20.0).line(steps_per_s=50.0)
    for part in (" 50%", "500 steps", "50 steps/s", "return 12.3", "v3", "0:10 left"):
        assert part in line


def test_unknown_values_are_not_zeros() -> None:
    line = Status(1.0, 1, 1000, 0, None, None).line(0.0)
    assert "return -" in line and "- left" in line and "policy" not in line


def test_run_without_a_step_says_that_it_starts() -> None:
    assert Status(12.3, 0, 1000, 0, None, None).line(0.0) == "starting, 12 s"


def test_speed_counts_from_the_first_step_not_from_launch() -> None:
    stream = Terminal()
    progress = Progress(stream)
    progress.show(status(100, 20.0))
    progress.show(status(300, 24.0))
    assert "50 steps/s" in stream.getvalue()


def test_terminal_gets_one_refreshing_line_others_plain_ones() -> None:
    terminal, pipe = Terminal(), io.StringIO()
    for stream in (terminal, pipe):
        progress = Progress(stream)
        for steps in (1, 2, 3):
            progress.show(status(steps, 1.0 + steps))
        progress.close()
    assert terminal.getvalue().count("\n") == 1
    assert pipe.getvalue().count("\n") == 1
    assert "\r" not in pipe.getvalue()
