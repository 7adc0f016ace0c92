"""A full disk costs records, never half of one and never the process."""

from __future__ import annotations

import logging
import pathlib
import struct
import time

import pytest
from small_disks import fill, small_disk
from tensorboardX import FileWriter
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.summary_pb2 import Summary

from acme_quant.launch.nodes.loggers import CSVLogger, make_logger
from acme_quant.records import event_file
from acme_quant.records.csv_rows import read_rows
from acme_quant.records.say import say
from acme_quant.records.whole_records import LOSSES, WholeRecords, lost_records


def test_a_full_disk_loses_whole_records_and_says_so_once(
    tmp_path: pathlib.Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(LOSSES, str(tmp_path))
    record = b"r" * 999 + b"\n"
    with small_disk(tmp_path / "disk", "64k") as disk, caplog.at_level(logging.INFO):
        records = WholeRecords(disk / "rows.csv")
        assert records.append(record)
        ballast = fill(disk)
        kept = 1 + sum(records.append(record) for _ in range(10))
        # A page that was begun has room for some more, and then for a part of one.
        assert 1 < kept < 8 and records.lost == 11 - kept
        assert (disk / "rows.csv").read_bytes() == kept * record
        assert len(caplog.records) == 1 and "No space left" in caplog.text
        ballast.unlink()
        assert records.append(record)
        assert (disk / "rows.csv").read_bytes() == (kept + 1) * record
        assert f"{11 - kept} lost" in caplog.records[1].message
        records.close()
    assert lost_records(tmp_path) == {"rows.csv": 11 - kept}


def test_a_logger_on_a_full_disk_loses_rows_and_goes_on(tmp_path: pathlib.Path) -> None:
    with small_disk(tmp_path / "disk", "64k") as disk:
        ballast = fill(disk)
        logger = make_logger(disk, "node", "steps", time.time())
        # More than tensorboardX's queue has room for.
        for step in range(30):
            logger.write({"steps": step})
        ballast.unlink()
        logger.write({"steps": 30})
        logger.write({"steps": 31, "later": 1})
        logger.close()
        rows = read_rows(disk / "csv" / "node.csv")
        assert [(row["steps"], row["later"]) for row in rows] == [
            ("30", ""),
            ("31", "1"),
        ]
        assert list((disk / "tensorboard" / "node").glob(event_file.PATTERN))


def test_a_column_that_comes_later_gets_into_the_file(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.csv"
    for row in ({"a": 1, "b": 2}, {"a": 3, "c": "x,y"}, {"d": 5}, {"a": 6, "b": 7}):
        logger = CSVLogger(path)
        logger.write(row)
        logger.write(row)
        logger.close()
    assert [list(row.values()) for row in read_rows(path)[::2]] == [
        ["1", "2", "", ""],
        ["3", "", "x,y", ""],
        ["", "", "", "5"],
        ["6", "7", "", ""],
    ]
    assert len(read_rows(path)) == 8 and list(tmp_path.iterdir()) == [path]


def test_a_row_after_a_torn_one_is_whole(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.csv"
    for torn, rows in (("a,b\n1,2\n3", 2), ("a,b", 1), ("", 1)):
        path.write_text(torn)
        logger = CSVLogger(path)
        logger.write({"a": 5, "b": 6})
        logger.close()
        assert len(read_rows(path)) == rows
        assert read_rows(path)[-1] == {"a": "5", "b": "6"}


def write_events(folder: pathlib.Path, steps: range) -> None:
    file = event_file.EventFile(folder)
    for step in steps:
        file.write(Summary(value=[Summary.Value(tag="a", simple_value=step)]), step)
    file.close()


def steps_of(path: pathlib.Path) -> list[int]:
    bodies = map(event_file._body, event_file._records(path.read_bytes()))
    return [Event.FromString(body).step for body in bodies][1:]


def test_points_after_a_step_are_cut(tmp_path: pathlib.Path) -> None:
    write_events(tmp_path, range(1, 9))
    (path,) = tmp_path.glob(event_file.PATTERN)
    assert steps_of(path) == list(range(1, 9))
    with path.open("ab") as file:
        file.write(struct.pack("<Q", 50) + b"torn")
    assert event_file.cut(path, 5)
    assert steps_of(path) == [1, 2, 3, 4, 5]
    assert not event_file.cut(path, 5)


def test_files_of_tensorboards_own_writer_are_cut(tmp_path: pathlib.Path) -> None:
    writer = FileWriter(str(tmp_path))
    for step in (1, 2, 3):
        writer.add_summary(Summary(value=[Summary.Value(tag="a")]), step)
    writer.close()
    (path,) = tmp_path.glob(event_file.PATTERN)
    event_file.cut(path, 2)
    assert steps_of(path) == [1, 2]


def test_a_sentence_that_cannot_be_printed_is_lost_and_the_next_is_not(
    tmp_path: pathlib.Path,
) -> None:
    with small_disk(tmp_path / "disk", "16k") as disk:
        with (disk / "log").open("w") as log:
            ballast = fill(disk)
            say("lost" * 2000, log)
            ballast.unlink()
            say("kept", log)
        assert (disk / "log").read_text() == "kept\n"
