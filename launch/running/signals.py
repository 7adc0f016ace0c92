"""Signals that ask a command to end: the first in order, the second at once.

    leave_on_signals()   from a command's first line: it leaves at once
    listen()             from then on the first is noted, for a loop that asks for it

A handler raises nothing. An exception would come out wherever Python happens to be, and
in a library's callback (JAX's, of the garbage collector) it is dropped there.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from types import FrameType
from typing import NamedTuple

from acme_quant.launch.running import temporary
from acme_quant.launch.settings.process_groups import ENDING, WORD

# `timeout` sends its signal to a command and then to the group that it is in: two
# within this time are one.
ONE_S = 0.1


class Asked(NamedTuple):
    """The signal that has asked a command to end; `code` is the exit code to say so."""

    name: str
    code: int


_owner = 0
_listening = False
_first: int | None = None
_first_at = 0.0


def leave_on_signals() -> None:
    """Lets this process leave at once, with nothing left behind, when it is asked to.

    SIGHUP stays ignored where it was: `nohup` asks for that.
    """
    global _owner, _listening, _first
    _owner, _listening, _first = os.getpid(), False, None
    for number in (*ENDING, WORD):
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _receive)


def listen() -> None:
    """Notes the first signal from now on; see `asked`."""
    global _listening
    # Again: Launchpad takes some of them when it starts threads.
    leave_on_signals()
    _listening = True


def asked() -> Asked | None:
    """Returns what has asked this process to end, None while nothing has."""
    if _first is None:
        return None
    # Whoever started us says it for a signal that he has got.
    number = signal.SIGTERM if _first == WORD else _first
    return Asked(signal.Signals(number).name, 128 + number)


def _receive(number: int, frame: FrameType | None) -> None:
    global _first, _first_at
    del frame
    if os.getpid() != _owner:  # A fork that has not become another program yet.
        os._exit(128 + number)
    if _listening and _first is None:
        _first, _first_at = number, time.monotonic()
    elif not _listening or not _says_the_same(number):
        _leave(number)


def _says_the_same(number: int) -> bool:
    return number == WORD or time.monotonic() - _first_at < ONE_S


def _leave(number: int) -> None:
    if temporary.leaving:
        return
    if not _listening:
        _first_words(number)
    number = signal.SIGTERM if number == WORD else number
    temporary.leave(128 + number)


def _first_words(number: int) -> None:
    name = signal.Signals(number).name
    command = " ".join(["acme-quant", *sys.argv[1:2]])
    try:  # No print: the interrupted frame may be in the middle of one.
        os.write(sys.__stderr__.fileno(), f"{command}: ended by {name}\n".encode())
    except (OSError, ValueError, AttributeError):
        pass
