"""TensorBoard's event files: records of length, checksum, protocol buffer, checksum."""

from __future__ import annotations

import fnmatch
import os
import pathlib
import socket
import struct
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from acme_quant.records import durable
from acme_quant.records.whole_records import WholeRecords

if TYPE_CHECKING:
    from tensorboardX.proto.event_pb2 import Event
    from tensorboardX.proto.summary_pb2 import Summary

PATTERN = "events.out.tfevents.*"
_VERSION = "brain.Event:2"
_LENGTH, _CHECKSUM = struct.Struct("<Q"), struct.Struct("<I")


class EventFile:
    """Writes one event a record, in the thread that calls: it takes microseconds."""

    def __init__(self, directory: pathlib.Path) -> None:
        """Writes to a new file in `directory`, made with the first event."""
        from tensorboardX.proto.event_pb2 import Event

        host = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}"
        self._records = WholeRecords(directory / PATTERN.replace("*", host))
        self._head = _record(Event(wall_time=time.time(), file_version=_VERSION))

    def write(self, summary: Summary, step: int) -> None:
        """Adds one event."""
        from tensorboardX.proto.event_pb2 import Event

        event = Event(wall_time=time.time(), step=step, summary=summary)
        # A file without its version is none: both are there or neither.
        if self._records.append(self._head + _record(event)):
            self._head = b""

    def close(self) -> None:
        """Closes the file."""
        self._records.close()


def is_one(name: str) -> bool:
    """Returns whether a file of this name is an event file."""
    return fnmatch.fnmatch(name, PATTERN)


def cut(path: pathlib.Path, last_step: float) -> bool:
    """Drops the events after a step, and a torn end; returns whether there were any."""
    from tensorboardX.proto.event_pb2 import Event

    content = path.read_bytes()
    kept = b"".join(
        record
        for record in _records(content)
        if Event.FromString(_body(record)).step <= last_step
    )
    if len(kept) < len(content):
        durable.replace_bytes(path, kept)
    return len(kept) < len(content)


def _record(event: Event) -> bytes:
    from tensorboardX.record_writer import masked_crc32c

    body = event.SerializeToString()
    length = _LENGTH.pack(len(body))
    sums = [_CHECKSUM.pack(masked_crc32c(part)) for part in (length, body)]
    return b"".join((length, sums[0], body, sums[1]))


def _records(content: bytes) -> Iterator[bytes]:
    """Yields whole records up to a torn or damaged one."""
    from tensorboardX.record_writer import masked_crc32c

    frame = _LENGTH.size + 2 * _CHECKSUM.size
    begin = 0
    while begin + frame <= len(content):
        (size,) = _LENGTH.unpack_from(content, begin)
        record = content[begin : begin + frame + size]
        begin += frame + size
        if begin > len(content):
            return
        (checksum,) = _CHECKSUM.unpack(record[-_CHECKSUM.size :])
        if checksum != masked_crc32c(_body(record)):
            return
        yield record


def _body(record: bytes) -> bytes:
    return record[_LENGTH.size + _CHECKSUM.size : -_CHECKSUM.size]
