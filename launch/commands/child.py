"""Runs `acme-quant train` as a child: its output in a file, its end in our hands."""

from __future__ import annotations

import ctypes
import os
import pathlib
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from types import FrameType

from acme_quant.records.tail import last_line

_PROGRAM = "from acme_quant.launch import cli; cli.main()"
_PR_SET_PDEATHSIG = 1
# A run that was asked to end saves and stops its nodes.
END_S = 60.0
SHOW_EVERY_S = 15.0


class Interrupted(Exception):
    """A signal asked us to end; `code` is the exit code that says so."""

    def __init__(self, number: int) -> None:
        """Keeps the shell's exit code of signal `number`."""
        super().__init__(signal.Signals(number).name)
        self.code = 128 + number


def raise_on_signals() -> None:
    """Makes Ctrl-C and SIGTERM raise Interrupted."""

    def handler(number: int, frame: FrameType | None) -> None:
        del frame
        raise Interrupted(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def train(
    flags: Sequence[str], log: pathlib.Path, show: Callable[[str], None]
) -> tuple[int, str]:
    """Trains with these flags and waits for the end.

    Args:
      flags: of `acme-quant train`.
      log: file for what the run prints.
      show: called now and then with the newest line of it.

    Returns:
      The run's exit code and its last line.

    Raises:
      Interrupted: a signal came; the run has ended by then.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, "train", *flags],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # Ctrl-C reaches us alone, so that the run gets one signal and not two.
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
    try:
        while True:
            try:
                return process.wait(SHOW_EVERY_S), last_line(log)
            except subprocess.TimeoutExpired:
                show(last_line(log))
    except Interrupted:
        _end(process)
        raise


def _end(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGINT)
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent is gone."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
