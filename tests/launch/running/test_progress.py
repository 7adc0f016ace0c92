from __future__ import annotations

import fcntl
import io
import os
import struct
import termios

from acme_quant.launch.running.progress import Progress, Status, terminal_columns


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


LONG = Status(100.0, 123456, 1000000, 23456, 345, 123.45, failed_episodes=12)


def test_a_line_is_no_wider_than_the_terminal_and_loses_what_tells_least() -> None:
    full = LONG.line(1234.5)
    assert LONG.line(1234.5, len(full)) == full
    for columns in range(len(full)):
        line = LONG.line(1234.5, columns)
        assert len(line) <= columns
        assert columns < 4 or line.startswith(" 12%")
    line = LONG.line(1234.5, 79)
    assert "return 123.5" in line and "12 episodes failed" in line and "left" in line
    assert "policy" not in line


def test_a_line_follows_the_terminal_when_that_is_resized() -> None:
    terminal, widths = Terminal(), iter((200, 40, 80))
    progress = Progress(terminal, columns=lambda stream: next(widths))
    for _ in range(3):
        progress.show(LONG)
    wide, narrow, middle = terminal.getvalue().split("\r\x1b[K")[1:]
    assert len(narrow) < 40 < len(middle) < 80 < len(wide)


def test_the_width_is_that_of_the_terminal_behind_the_stream() -> None:
    main, child = os.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 57, 0, 0))
    with open(child, "w") as stream:
        assert terminal_columns(stream) == 57
    os.close(main)
    assert terminal_columns(io.StringIO()) == 80
