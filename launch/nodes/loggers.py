"""One logger for a node: a CSV file that goes on after a restart, and TensorBoard.

The rows of one file have the columns of its first row. Both files are written without
TensorFlow, so that an actor's process need not import it.
"""

from __future__ import annotations

import csv
import pathlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from acme.utils import loggers


class CSVLogger(loggers.Logger):
    """Appends rows to one file and flushes each, so that a kill loses no row."""

    def __init__(self, path: pathlib.Path) -> None:
        """Opens `path` for appending; columns of a file that exists are kept."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._fields: list[str] | None = None
        if path.exists() and path.stat().st_size:
            with path.open(newline="") as file:
                self._fields = next(csv.reader(file))
        self._file = path.open("a", newline="", buffering=1)

    def write(self, data: Mapping[str, Any]) -> None:
        """Writes one row; a column that the first row did not have is left out."""
        if self._fields is None:
            self._fields = list(data)
            csv.writer(self._file).writerow(self._fields)
        csv.writer(self._file).writerow([_cell(data.get(f, "")) for f in self._fields])

    def close(self) -> None:
        """Closes the file."""
        self._file.close()


class TensorBoardLogger(loggers.Logger):
    """Writes the numbers of a row as scalars over one of its columns."""

    def __init__(self, directory: pathlib.Path, steps_key: str) -> None:
        """Opens an event file in `directory`; `steps_key` names the x axis."""
        import tensorboardX

        self._writer = tensorboardX.FileWriter(str(directory), flush_secs=10)
        self._steps_key = steps_key

    def write(self, data: Mapping[str, Any]) -> None:
        """Adds one scalar for each number of the row.

        All are one event: the writer's queue has room for ten, and who puts more in
        waits milliseconds for its threads.
        """
        from tensorboardX.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=key, simple_value=float(value))
            for key, value in data.items()
            if np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number)
        ]
        step = int(data.get(self._steps_key, 0))
        self._writer.add_summary(Summary(value=values), step)

    def close(self) -> None:
        """Writes what is left and closes the file."""
        self._writer.close()


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


def _cell(value: Any) -> Any:
    """Returns a plain Python value for a tensor or an array of one number."""
    if hasattr(value, "numpy"):
        value = value.numpy()
    return value.item() if hasattr(value, "item") else value
