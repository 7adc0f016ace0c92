"""One run at a time in a folder; the kernel lets go of the lock when a run ends."""

from __future__ import annotations

import fcntl
import os
import pathlib

LOCK_FILE = "lock"


class WorkdirInUse(ValueError):
    """Another run writes into the folder."""


class WorkdirLock:
    """Holds a folder from `acquire` until the process ends, however it ends."""

    def __init__(self, workdir: pathlib.Path) -> None:
        """Locks nothing yet."""
        self._path = workdir / LOCK_FILE
        self._file: int | None = None

    def acquire(self) -> None:
        """Takes the folder.

        Raises:
          WorkdirInUse: with the pid of the run that holds it.
        """
        # Not inherited by the nodes: the lock must go with the launcher.
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(file, 32).decode(errors="replace").strip() or "unknown"
            os.close(file)
            raise WorkdirInUse(
                f"expected a folder of its own, got --workdir={self._path.parent}, "
                f"which the run with pid {holder} is using."
            ) from None
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
        self._file = file

    def release(self) -> None:
        """Lets go of the folder."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
