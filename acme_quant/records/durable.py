"""Files that are there as a whole after a crash, or not at all.

A rename is atomic, but the data behind it need not be on the disk yet; so everything
below a folder is synced before the folder gets its name, and the name itself after.
"""

from __future__ import annotations

import os
import pathlib


def write_bytes(path: pathlib.Path, content: bytes) -> None:
    """Writes a file and waits until the disk has it."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def replace_bytes(path: pathlib.Path, content: bytes) -> None:
    """Puts `content` in the place of a file: a reader sees the old or the new.

    Raises:
      OSError: if it could not be written; the old file stays, and nothing beside it.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_bytes(temporary, content)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: pathlib.Path) -> None:
    """Waits until the disk has a file, or the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_tree(folder: pathlib.Path) -> None:
    """Waits until the disk has every file below `folder`, and every name."""
    for parent, _, files in os.walk(folder, topdown=False):
        for name in files:
            sync(pathlib.Path(parent, name))
        sync(pathlib.Path(parent))


def rename(source: pathlib.Path, target: pathlib.Path) -> None:
    """Gives a synced folder its name for good."""
    source.rename(target)
    sync(target.parent)
