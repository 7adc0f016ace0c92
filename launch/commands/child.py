"""Runs `acme-quant train` as a child: its output in a file, its end in our hands."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from acme_quant.launch.running import signals
from acme_quant.launch.running.signals import Asked
from acme_quant.launch.settings import process_groups
from acme_quant.records.tail import last_line

_PROGRAM = "from acme_quant.launch import cli; cli.main()"
# A run that was asked to end saves and stops its nodes.
END_S = 60.0
SHOW_EVERY_S = 15.0
_POLL_S = 0.1


class Interrupted(Exception):
    """A signal asked us to end; `code` is the exit code that says so."""

    def __init__(self, asked: Asked) -> None:
        """Takes over name and exit code."""
        super().__init__(asked.name)
        self.code = asked.code


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
        process = process_groups.start(
            [sys.executable, "-c", _PROGRAM, "train", *flags],
            commands=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    shown = time.monotonic()
    while not process_groups.wait(process, _POLL_S):
        if asked := signals.asked():
            process_groups.tell(process)
            process_groups.wait(process, END_S)
            process_groups.end(process)
            raise Interrupted(asked)
        if time.monotonic() - shown > SHOW_EVERY_S:
            shown = time.monotonic()
            show(last_line(log))
    code = process_groups.end(process)
    if asked := signals.asked():
        raise Interrupted(asked)
    return code, last_line(log)
