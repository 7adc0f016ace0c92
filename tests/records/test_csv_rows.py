"""The end of a file of days costs as much as that of a file of minutes."""

from __future__ import annotations

import builtins
import io
import pathlib
from typing import Any

import pytest

from acme_quant.records import csv_rows, tail
from acme_quant.records.csv_rows import last_row, read_rows


def test_last_row_of_a_file_and_of_none(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.csv"
    assert last_row(path) == {}
    path.write_text("a,b\n")
    assert last_row(path) == {}
    path.write_text("a,b\n1,2\n3,4\n")
    assert last_row(path) == {"a": "3", "b": "4"}


def test_columns_of_older_versions_have_the_names_of_today(
    tmp_path: pathlib.Path,
) -> None:
    path = tmp_path / "quantizer.csv"
    path.write_text("polls,version,learner_step\n7,1,100\n8,2,200\n9,3")
    row = {"polls": "8", "policy_version": "2", "learner_steps": "200"}
    assert last_row(path) == row
    assert read_rows(path)[1:] == [row]


def test_a_row_that_is_not_ended_yet_is_not_the_last(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.csv"
    for torn in ("5", "5,", "5,6"):
        path.write_text("a,b\r\n1,2\r\n3,4\r\n" + torn)
        assert last_row(path) == {"a": "3", "b": "4"}


def test_a_row_longer_than_a_block_is_whole(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.csv"
    wide = "x" * (3 * tail.BLOCK_BYTES)
    path.write_text(f"a,b\n1,2\n{wide},7\n")
    assert last_row(path) == {"a": wide, "b": "7"}


def test_the_last_line_that_says_anything(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log"
    assert tail.last_line(path) == ""
    path.write_text("first\nlast words\n" + "\n" * (2 * tail.BLOCK_BYTES))
    assert tail.last_line(path) == "last words"


class Counting(io.BytesIO):
    """A file that counts the bytes that are read of it."""

    count = 0

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self.count += len(data)
        return data

    def readline(self, size: int | None = -1) -> bytes:
        line = super().readline(size)
        self.count += len(line)
        return line


def test_the_end_of_a_long_file_is_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    file = Counting(b"a,b\n" + b"1,2\n" * 500_000 + b"3,4\n")

    def opened(*args: Any, **kwargs: Any) -> Counting:
        return file

    monkeypatch.setattr(builtins, "open", opened)
    row = csv_rows.last_row("a.csv")
    monkeypatch.undo()
    assert row == {"a": "3", "b": "4"}
    assert file.count <= 2 * tail.BLOCK_BYTES
