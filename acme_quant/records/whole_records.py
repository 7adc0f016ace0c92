"""A file that grows by whole records, whatever becomes of the disk under it.

A record that does not fit is taken back, counted and lost: one warning says so, another
how many there were once the disk has room again. Who writes goes on meanwhile.
"""

from __future__ import annotations

import logging
import os
import pathlib

# Names the folder in which a process tells its starter of lost records.
LOSSES = "ACME_QUANT_LOSSES"


class WholeRecords:
    """Appends records to one file; each is there as a whole or not at all.

    Attributes:
      lost: records that could not be written.
    """

    def __init__(self, path: pathlib.Path) -> None:
        """Appends to `path`, which the first record makes, with its folders."""
        self.lost = 0
        self._path = path
        self._file: int | None = None
        self._told = False

    def append(self, record: bytes) -> bool:
        """Writes one record; returns whether it is in the file."""
        try:
            self._write(record)
        except OSError as error:
            self._lose(error)
            return False
        if self._told:
            self._told = False
            logging.warning("%s is written again, %d lost", self._path, self.lost)
        return True

    def close(self) -> None:
        """Closes the file; the next record looks for it anew by its name."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _write(self, record: bytes) -> None:
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o644)
        before = os.fstat(self._file).st_size
        try:
            rest = memoryview(record)
            # After a part of it the next call names the reason.
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            os.ftruncate(self._file, before)
            raise

    def _lose(self, error: OSError) -> None:
        self.lost += 1
        if not self._told:
            self._told = True
            logging.warning("what is meant for %s is lost: %s", self._path, error)
        note_loss(self._path, self.lost)


def lost_records(folder: pathlib.Path) -> dict[str, int]:
    """Returns {file name: lost records} as processes have told it in `folder`."""
    found: dict[str, int] = {}
    for path in sorted(folder.glob("*.lost")):
        name = path.name.split(":")[0]
        found[name] = found.get(name, 0) + int(path.read_text() or 0)
    return found


def note_loss(path: pathlib.Path, lost: int) -> None:
    """Tells the process's starter how much of a file is lost, if it can be told."""
    folder = os.environ.get(LOSSES)
    if folder:
        note = pathlib.Path(
            folder, f"{path.name}:{path.parent.name}:{os.getpid()}.lost"
        )
        try:
            note.write_text(str(lost))
        except OSError:
            pass
