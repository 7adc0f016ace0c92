from __future__ import annotations

import csv
import pathlib
import struct
import time
from typing import Any

import numpy as np
from acme.utils import loggers
from tensorboardX.proto.event_pb2 import Event

from acme_quant.launch.nodes.loggers import (
    CSVLogger,
    TensorBoardLogger,
    TimeFilter,
    make_logger,
)


def rows(path: pathlib.Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def events(folder: pathlib.Path) -> list[Any]:
    """Returns the events of the one file in `folder`: length, crc, bytes, crc each."""
    (path,) = folder.glob("events*")
    data, found = path.read_bytes(), []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        found.append(Event.FromString(data[12 : 12 + size]))
        data = data[16 + size :]
    return found


def test_rows_are_on_disk_before_the_logger_is_closed(tmp_path: pathlib.Path) -> None:
    logger = CSVLogger(tmp_path / "a.csv")
    logger.write({"steps": 1, "loss": np.float32(0.5)})
    assert rows(tmp_path / "a.csv") == [{"steps": "1", "loss": "0.5"}]


def test_a_second_logger_goes_on_without_a_second_header(
    tmp_path: pathlib.Path,
) -> None:
    for step in (1, 2):
        logger = CSVLogger(tmp_path / "a.csv")
        logger.write({"steps": step, "new": 0} if step == 1 else {"steps": step})
        logger.close()
    assert [row["steps"] for row in rows(tmp_path / "a.csv")] == ["1", "2"]


def test_rows_carry_seconds_since_launch_and_scalars_reach_tensorboard(
    tmp_path: pathlib.Path,
) -> None:
    logger = make_logger(tmp_path, "node", "steps", time.time() - 10)
    logger.write({"steps": 3, "text": "no number"})
    logger.close()
    row = rows(tmp_path / "csv" / "node.csv")[0]
    assert 10 <= float(row["wall_s"]) < 20
    assert list((tmp_path / "tensorboard" / "node").glob("events*"))


def test_a_row_is_one_event_of_tensorboard(tmp_path: pathlib.Path) -> None:
    logger = TensorBoardLogger(tmp_path, "steps")
    many = {f"us_{i}": np.float32(i) for i in range(20)}
    logger.write({"steps": 3, "text": "no number", "array": np.zeros(2), **many})
    logger.write({"steps": 4})
    logger.close()
    _, first, second = events(tmp_path)  # Before them the format's version.
    assert (first.step, second.step) == (3, 4)
    values = {value.tag: value.simple_value for value in first.summary.value}
    assert values == {"steps": 3, **many}


def test_rows_too_near_are_dropped(tmp_path: pathlib.Path) -> None:
    logger = make_logger(tmp_path, "node", "steps", time.time(), every_s=60)
    for step in range(5):
        logger.write({"steps": step})
    logger.close()
    assert len(rows(tmp_path / "csv" / "node.csv")) == 1


def test_a_filter_says_what_it_will_drop() -> None:
    memory = loggers.InMemoryLogger()
    logger = TimeFilter(memory, every_s=0.2)
    assert logger.wants()
    logger.write({"steps": 1})
    assert not logger.wants()
    logger.write({"steps": 2})
    time.sleep(0.2)
    assert logger.wants()
    logger.write({"steps": 3})
    assert memory.data == [{"steps": 1}, {"steps": 3}]
