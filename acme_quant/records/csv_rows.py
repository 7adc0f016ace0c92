"""Reads CSV files that a killed process may have left unfinished."""

from __future__ import annotations

import csv
import os


def read_rows(path: os.PathLike[str] | str) -> list[dict[str, str]]:
    """Returns the whole rows of a CSV file; [] when there is none, or no CSV in it.

    A row that was cut short by a kill is left out.
    """
    try:
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, csv.Error, UnicodeDecodeError):
        return []
    return [row for row in rows if None not in row and None not in row.values()]
