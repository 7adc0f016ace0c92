"""A command's own folder for temporary files, removed with all that was left in it.

Nodes leave by `os._exit` or are killed, and TensorFlow's sources of traced functions,
Launchpad's folders and whatever an environment writes would stay.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pathlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import NoReturn

from acme_quant.launch.settings import process_groups
from acme_quant.records import say

PREFIX = "acme-quant-"
_LOCK = "lock"
# A folder this young may be about to be locked.
_YOUNG_S = 60.0

_own: pathlib.Path | None = None
# Whether this process is about to end: its exit code is decided.
leaving = False


@contextlib.contextmanager
def own_folder() -> Iterator[None]:
    """Makes TMPDIR a folder of this process and its children, until the end of both.

    Where none can be made, files go where they went before.
    """
    global _own
    try:
        _sweep(pathlib.Path(tempfile.gettempdir()))
        _own = pathlib.Path(tempfile.mkdtemp(prefix=PREFIX))
        lock = os.open(_own / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        yield
        return
    before = os.environ.get("TMPDIR")
    _use(str(_own))
    try:
        yield
    finally:
        _use(before)
        _remove()
        os.close(lock)


def leave(code: int) -> NoReturn:
    """Ends this process at once, with all that it started and nothing temporary left.

    A signal's handler may call it.
    """
    global leaving
    leaving = True
    process_groups.end_all()
    say.flush_all()
    _remove()
    os._exit(code)


def _use(folder: str | None) -> None:
    if folder is None:
        os.environ.pop("TMPDIR", None)
    else:
        os.environ["TMPDIR"] = folder
    tempfile.tempdir = None


def _remove() -> None:
    if _own is not None:
        # Again: a process that is just being killed may still write.
        for _ in range(3):
            shutil.rmtree(_own, ignore_errors=True)


def _sweep(folder: pathlib.Path) -> None:
    """Removes what commands left that were killed: nobody holds their lock."""
    for path in folder.glob(f"{PREFIX}*/{_LOCK}"):
        try:
            if time.time() - path.stat().st_mtime < _YOUNG_S:
                continue
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent, ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(lock)
