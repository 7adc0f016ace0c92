"""The end of a file that grows for days: sought from behind, never read as a whole."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO

BLOCK_BYTES = 4096


def last_line(path: os.PathLike[str] | str) -> str:
    """Returns the last line of a file that says anything; "" without one."""
    try:
        with open(path, "rb") as file:
            return last_of(file, lambda line: line.strip() != b"").decode(
                errors="replace"
            )
    except OSError:
        return ""


def last_of(
    file: BinaryIO, is_wanted: Callable[[bytes], bool], ended: bool = False
) -> bytes:
    """Returns the last line of a file for which `is_wanted` holds; b"" without one.

    Args:
      file: is read from its end in blocks.
      is_wanted: is asked for each line, the last one first.
      ended: leaves out a line that no newline ends yet.
    """
    size = file.seek(0, os.SEEK_END)
    length = BLOCK_BYTES
    while True:
        start = max(0, size - length)
        file.seek(start)
        text = file.read(size - start)
        if ended:
            text = text[: text.rfind(b"\n") + 1]
        # The first line of what was read has its begin before it, unless it is all.
        lines = text.splitlines()[1 if start else 0 :]
        found = next((line for line in reversed(lines) if is_wanted(line)), None)
        if found is not None or not start:
            return found or b""
        length *= 2
