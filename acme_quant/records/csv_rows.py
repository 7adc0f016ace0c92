"""Reads CSV files that a killed process or an older version may have left.

A row that was cut short by a kill is left out. Columns have the names of today.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Sequence

from acme_quant.records import tail

# What columns were called in files of older versions -> what they are called.
RENAMED = {"learner_step": "learner_steps", "version": "policy_version"}


def names_of(header: Sequence[str]) -> list[str]:
    """Returns a file's columns under their names of today."""
    return [RENAMED.get(name, name) for name in header]


def read_rows(path: os.PathLike[str] | str) -> list[dict[str, str]]:
    """Returns the whole rows of a CSV file; [] when there is none, or no CSV in it."""
    try:
        with open(path, newline="") as file:
            names = names_of(next(csv.reader(file), []))
            rows = list(csv.DictReader(file, names))
    except (OSError, csv.Error, UnicodeDecodeError):
        return []
    return [row for row in rows if None not in row and None not in row.values()]


def last_row(path: os.PathLike[str] | str) -> dict[str, str]:
    """Returns the last whole row of a CSV file, empty when there is none yet.

    Reads the head and the end: a file of days is asked for four times a second. No cell
    may hold a line break.
    """
    try:
        with open(path, "rb") as file:
            header = _cells(file.readline())
            names = names_of(header)
            last = tail.last_of(
                file, lambda line: len(_cells(line)) == len(header), ended=True
            )
    except OSError:
        return {}
    row = _cells(last)
    return dict(zip(names, row)) if row != header else {}


def _cells(line: bytes) -> list[str]:
    return next(csv.reader([line.decode(errors="replace").rstrip("\r\n")]), [])
