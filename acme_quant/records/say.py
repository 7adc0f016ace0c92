"""One sentence for a person, from a process that must not end for want of a reader."""

from __future__ import annotations

import os
import select
import sys
from typing import TextIO


def say(sentence: str, stream: TextIO | None = None, end: str = "\n") -> None:
    """Prints a line at once; a full disk or a closed pipe behind it loses the line."""
    stream = stream or sys.stdout
    try:
        print(sentence, file=stream, end=end, flush=True)
    except OSError:
        _drop(stream)


def flush_all() -> None:
    """Hands on what was printed, before a process leaves by `os._exit`."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            _drop(stream)
        except RuntimeError:  # A signal came in the middle of a print.
            continue


def is_unread(stream: TextIO) -> bool:
    """Returns whether the stream is a pipe or socket that nobody reads any more."""
    poll = select.poll()
    poll.register(stream.fileno(), 0)  # Errors are told unasked.
    return bool(poll.poll(0))


def _drop(stream: TextIO) -> None:
    """Empties the stream's buffer, which would fail again at each later line."""
    descriptor = stream.fileno()
    kept = os.dup(descriptor)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, descriptor)
        stream.flush()
    finally:
        os.dup2(kept, descriptor)
        os.close(kept)
        os.close(nothing)
