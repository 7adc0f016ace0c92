"""Presets: one file of flags per agent and task, each value with its source.

`NAME.flags` is text that absl's --flagfile reads: one flag a line, comments after `#`.
`d4pg_*` and `dqn_*` have the paper's sizes; `*_small` suits 2 cores without a GPU. A
flag on the command line overrides the preset's.
"""

from __future__ import annotations

import difflib
import pathlib

_FOLDER = pathlib.Path(__file__).parent


def names() -> list[str]:
    """Returns the names of all presets, sorted."""
    return sorted(path.stem for path in _FOLDER.glob("*.flags"))


def path(name: str) -> pathlib.Path:
    """Returns the file of the preset called `name`.

    Raises:
      ValueError: naming the nearest presets, if there is none of this name.
    """
    if name not in names():
        close = difflib.get_close_matches(name, names(), n=3) or names()
        raise ValueError(f"unknown preset {name!r}: expected {', '.join(close)}.")
    return _FOLDER / f"{name}.flags"


def flags(name: str) -> list[str]:
    """Returns a preset's flags as they would stand on a command line.

    Raises:
      ValueError: if there is no preset of this name.
    """
    lines = map(str.strip, path(name).read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line.startswith("--")]
