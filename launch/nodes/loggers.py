"""One logger for a node: a CSV file that goes on after a restart, and TensorBoard.

A full disk loses rows, never the node. Both files are written without TensorFlow, so
that an actor's process need not import it.
"""

from __future__ import annotations

import csv
import io
import os
import pathlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from acme.utils import loggers

from acme_quant.records import durable
from acme_quant.records.event_file import EventFile
from acme_quant.records.whole_records import WholeRecords


class CSVLogger(loggers.Logger):
    """Appends rows to one file, each at once, so that a kill loses no row."""

    def __init__(self, path: pathlib.Path) -> None:
        """Goes on with the columns of a file that exists; a torn last row goes."""
        self._path = path
        self._records = WholeRecords(path)
        self._fields: list[str] = []
        if path.exists():
            whole = path.read_bytes()
            whole = whole[: whole.rfind(b"\n") + 1]
            os.truncate(path, len(whole))
            self._fields = next(csv.reader(io.StringIO(whole.decode())), [])

    def write(self, data: Mapping[str, Any]) -> None:
        """Writes one row; the file gets a column that it did not have."""
        new = [name for name in data if name not in self._fields]
        fields = [*self._fields, *new]
        if self._fields and new and not self._widen(fields):
            fields = self._fields
        row = _to_csv([_cell(data.get(name, "")) for name in fields])
        if not self._fields:
            row = _to_csv(fields) + row
        if self._records.append(row):
            self._fields = fields

    def close(self) -> None:
        """Closes the file."""
        self._records.close()

    def _widen(self, fields: list[str]) -> bool:
        """Puts a file of more columns in this one's place, if the disk has room."""
        blank = [""] * (len(fields) - len(self._fields))
        try:
            with self._path.open(newline="") as file:
                _, *rows = csv.reader(file)
            rows = [fields, *(row + blank for row in rows)]
            durable.replace_bytes(self._path, b"".join(map(_to_csv, rows)))
        except OSError:
            return False
        self._records.close()
        self._fields = fields
        return True


class TensorBoardLogger(loggers.Logger):
    """Writes the numbers of a row as scalars over one of its columns."""

    def __init__(self, directory: pathlib.Path, steps_key: str) -> None:
        """Opens an event file in `directory`; `steps_key` names the x axis."""
        self._file = EventFile(directory)
        self._steps_key = steps_key

    def write(self, data: Mapping[str, Any]) -> None:
        """Adds one event with a scalar for each number of the row."""
        from tensorboardX.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=key, simple_value=float(value))
            for key, value in data.items()
            if np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number)
        ]
        self._file.write(Summary(value=values), int(data.get(self._steps_key, 0)))

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class _WallTime(loggers.Logger):
    """Adds the seconds since the run was launched to every row."""

    def __init__(self, to: loggers.Logger, started: float) -> None:
        self._to = to
        self._started = started

    def write(self, data: Mapping[str, Any]) -> None:
        self._to.write({"wall_s": round(time.time() - self._started, 3), **data})

    def close(self) -> None:
        self._to.close()


class TimeFilter(loggers.Logger):
    """Acme's logger of the same name, which says beforehand what it will drop."""

    def __init__(self, to: loggers.Logger, every_s: float) -> None:
        """Passes rows on to `to`, none nearer to the last than `every_s` seconds."""
        self._to = to
        self._every_s = every_s
        self._next_s = 0.0

    def wants(self) -> bool:
        """Returns whether a row would be kept."""
        return time.monotonic() >= self._next_s

    def write(self, data: Mapping[str, Any]) -> None:
        """Passes one row on, or drops it."""
        if self.wants():
            self._next_s = time.monotonic() + self._every_s
            self._to.write(data)

    def close(self) -> None:
        """Closes the logger behind this one."""
        self._to.close()


def make_logger(
    workdir: pathlib.Path,
    node: str,
    steps_key: str,
    started: float,
    every_s: float = 0.0,
) -> loggers.Logger:
    """Returns the logger of one node.

    Args:
      workdir: the run's folder.
      node: file name of the node, such as `actor_0`.
      steps_key: column that TensorBoard draws the others over.
      started: time.time() at launch; every row tells its distance in `wall_s`.
      every_s: rows nearer to the last one are dropped; 0 keeps all.
    """
    both = loggers.Dispatcher(
        [
            CSVLogger(workdir / "csv" / f"{node}.csv"),
            TensorBoardLogger(workdir / "tensorboard" / node, steps_key),
        ]
    )
    timed = _WallTime(both, started)
    return TimeFilter(timed, every_s) if every_s else timed


def _to_csv(cells: Sequence[Any]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerow(cells)
    return text.getvalue().encode()


def _cell(value: object) -> object:
    """Returns a plain Python value, also for a tensor or an array of one number."""
    return np.asarray(value).item()
