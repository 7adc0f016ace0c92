"""A policy as bytes: what the publisher writes, the wire carries, the kernels read.

    offset  bytes  field (little endian)
    0       8      magic b'ACMEQNT1'
    8       4      format version
    12      4      layout bytes
    16      8      policy version
    24      8      learner step
    32      8      total bytes
    40      8      publication time, seconds since the epoch, float64
    48      12     zero
    60      4      CRC-32C of every other byte
    64      -      the layout: canonical JSON, the same for every version of one policy
    -       -      tensors in the layout's order, each at the next multiple of 64

Tensors follow one another by rule, so a layout cannot name an offset and two tensors
cannot overlap. Nothing in here is executed or unpickled: `decode` takes bytes from a
sender nobody vouches for, checks every length before it is used and refuses what it
does not know. Loading is that check and a pointer swap; no tensor is copied.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import mmap
import struct
import time
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple, Union

import numpy as np

from acme_quant import kernels

MAGIC = b"ACMEQNT1"
FORMAT_VERSION = 1
ALIGNMENT = 64
HUGE_PAGE = 1 << 21
HEADER = struct.Struct("<8sIIQQQd12sI")
CHECKSUM_AT = HEADER.size - 4

MAX_PAYLOAD_BYTES = 1 << 31
MAX_LAYOUT_BYTES = 1 << 20
MAX_LAYOUT_DEPTH = 12
MAX_TENSORS = 4096
MAX_RANK = 4
MAX_INTEGER_DIGITS = 19
MAX_U64 = (1 << 64) - 1

DTYPES = {
    name: np.dtype(name).newbyteorder("<")
    for name in ("int8", "uint8", "int32", "float16", "float32")
}

Buffer = Union[bytes, bytearray, memoryview, np.ndarray]


class PayloadError(ValueError):
    """The bytes are not a payload this version can read."""


class TensorSpec(NamedTuple):
    """One row of the tensor table: a unique name, a dtype's name and a shape."""

    name: str
    dtype: str
    shape: Tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor, without the gap before the next."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


@dataclasses.dataclass(frozen=True)
class Table:
    """Where the layout puts each tensor: the part of it a payload itself reads."""

    layout_bytes: bytes
    layout: Dict[str, Any]
    specs: Tuple[TensorSpec, ...]
    offsets: Tuple[int, ...]
    total_bytes: int

    def spans(self) -> np.ndarray:
        """Returns (offset, bytes) of each tensor: int64 [T, 2]."""
        rows = [(at, spec.nbytes) for at, spec in zip(self.offsets, self.specs)]
        return np.array(rows, np.int64).reshape(-1, 2)


@dataclasses.dataclass(frozen=True)
class Payload:
    """One policy version in one contiguous buffer.

    Attributes:
      buffer: all bytes, header first; read-only when decoded.
      table: the layout and where its tensors lie.
      policy_version: counts publications, from 1.
      learner_step: the learner's step the weights come from.
      published_s: when it was sealed, seconds since the epoch.
    """

    buffer: memoryview
    table: Table
    policy_version: int
    learner_step: int
    published_s: float

    @property
    def layout(self) -> Dict[str, Any]:
        """The layout as decoded from JSON."""
        return self.table.layout

    @property
    def nbytes(self) -> int:
        """Bytes of the whole payload."""
        return self.table.total_bytes

    def tensors(self) -> List[np.ndarray]:
        """Returns a view of each tensor, in the layout's order."""
        return [
            np.frombuffer(
                self.buffer, DTYPES[spec.dtype], math.prod(spec.shape), offset
            ).reshape(spec.shape)
            for spec, offset in zip(self.table.specs, self.table.offsets)
        ]


def aligned(offset: int) -> int:
    """Returns `offset` rounded up to a multiple of `ALIGNMENT`."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def aligned_buffer(nbytes: int) -> memoryview:
    """Returns a zeroed, writable buffer that starts at a multiple of `ALIGNMENT`."""
    # Millions of weights on small pages are more than a CPU's page table cache holds:
    # batches of 1, 8 and 32 at 3x2048 took 8, 5 and 4 % more time. (np.empty asks for
    # huge pages as well, np.zeros does not.)
    if nbytes >= HUGE_PAGE and hasattr(mmap, "MADV_HUGEPAGE"):
        pages = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        with contextlib.suppress(OSError):  # A kernel without them.
            pages.madvise(mmap.MADV_HUGEPAGE)
        return memoryview(pages)
    room = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room.data[start : start + nbytes]


def canonical_json(value: Any) -> bytes:
    """Returns the one JSON text of `value`: sorted keys, no spaces, ASCII."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), allow_nan=False
    ).encode("ascii")


def plan(layout: Dict[str, Any], specs: Sequence[TensorSpec]) -> Table:
    """Returns the table of a policy: `layout` with its tensors put in place.

    Args:
      layout: what the policy says of itself; JSON values only, no key 'tensors'.
      specs: the tensors in the order the layout's tensor ids count them.

    Raises:
      PayloadError: the policy is larger than a payload may be.
    """
    rows = [[spec.name, spec.dtype, list(spec.shape)] for spec in specs]
    return _table(canonical_json({**layout, "tensors": rows}))


def blank(table: Table, buffer: memoryview | None = None) -> Payload:
    """Returns a payload of zeros to be filled through `tensors()` and then sealed.

    Args:
      table: from `plan` or of an earlier payload.
      buffer: a writable buffer of `table.total_bytes` to use, or None for a new one.
    """
    if buffer is None:
        buffer = aligned_buffer(table.total_bytes)
    if buffer.readonly or buffer.nbytes != table.total_bytes:
        raise ValueError(
            f"expected a writable buffer of {table.total_bytes} bytes, got "
            f"{buffer.nbytes} bytes, {'read-only' if buffer.readonly else 'writable'}."
        )
    return Payload(buffer, table, 0, 0, 0.0)


def seal(
    payload: Payload,
    policy_version: int,
    learner_step: int,
    published_s: float | None = None,
) -> Payload:
    """Writes header, layout and checksum around tensors already in place."""
    table, buffer = payload.table, payload.buffer
    published_s = time.time() if published_s is None else published_s
    fields = (
        MAGIC,
        FORMAT_VERSION,
        len(table.layout_bytes),
        policy_version,
        learner_step,
        table.total_bytes,
        published_s,
        bytes(12),
    )
    end = HEADER.size + len(table.layout_bytes)
    buffer[HEADER.size : end] = table.layout_bytes
    HEADER.pack_into(buffer, 0, *fields, 0)
    HEADER.pack_into(buffer, 0, *fields, checksum(buffer))
    return Payload(buffer, table, policy_version, learner_step, published_s)


def checksum(buffer: memoryview) -> int:
    """Returns the CRC-32C of a payload's bytes but those of the checksum itself."""
    head = kernels.crc32c(buffer[:CHECKSUM_AT])
    return kernels.crc32c(buffer[HEADER.size :], head)


def decode(buffer: Buffer, table: Table | None = None) -> Payload:
    """Reads a payload in place, from a sender nobody vouches for.

    Args:
      buffer: exactly one payload, bytes or uint8, C-contiguous. The result views it;
        only a buffer that is not aligned to 16 bytes is copied.
      table: of an earlier version; it serves again when the layout bytes are the same.

    Raises:
      PayloadError: in one sentence, what was expected and what came.
    """
    view = _byte_view(buffer)
    header = _check_header(view)
    layout_end = HEADER.size + header.layout_bytes
    layout_bytes = bytes(view[HEADER.size : layout_end])
    if table is None or table.layout_bytes != layout_bytes:
        table = _table(layout_bytes)
    if table.total_bytes != view.nbytes:
        raise PayloadError(
            f"expected {table.total_bytes} bytes of the layout's tensors, got "
            f"{view.nbytes}."
        )
    return Payload(
        view, table, header.policy_version, header.learner_step, header.published_s
    )


def _byte_view(buffer: Buffer) -> memoryview:
    """Returns a read-only view of single bytes that starts at a multiple of 16."""
    if isinstance(buffer, np.ndarray) and buffer.dtype != np.uint8:
        raise PayloadError(f"expected a uint8 array, got {buffer.dtype}.")
    try:
        view = buffer.data if isinstance(buffer, np.ndarray) else memoryview(buffer)
    except TypeError as error:
        raise PayloadError(f"expected bytes, got {type(buffer).__name__}.") from error
    if view.ndim != 1 or view.itemsize != 1 or not view.c_contiguous:
        raise PayloadError("expected one contiguous run of bytes.")
    view = view.cast("B")
    if not HEADER.size <= view.nbytes <= MAX_PAYLOAD_BYTES:
        raise PayloadError(
            f"expected {HEADER.size} to {MAX_PAYLOAD_BYTES} bytes, got {view.nbytes}."
        )
    if np.frombuffer(view, np.uint8).ctypes.data % 16:
        copy = aligned_buffer(view.nbytes)
        copy[:] = view
        view = copy
    return view.toreadonly()


class _Header(NamedTuple):
    layout_bytes: int
    policy_version: int
    learner_step: int
    published_s: float


def _check_header(view: memoryview) -> _Header:
    """Returns the header's fields once lengths, version and checksum hold."""
    (
        magic,
        format_version,
        layout_bytes,
        policy_version,
        learner_step,
        total_bytes,
        published_s,
        zeros,
        expected,
    ) = HEADER.unpack_from(view)
    if magic != MAGIC:
        raise PayloadError(f"expected a payload beginning {MAGIC!r}, got {magic!r}.")
    if format_version != FORMAT_VERSION:
        raise PayloadError(
            f"expected payload format {FORMAT_VERSION}, got format {format_version}."
        )
    if total_bytes != view.nbytes:
        raise PayloadError(f"expected {total_bytes} bytes, got {view.nbytes}.")
    limit = min(MAX_LAYOUT_BYTES, view.nbytes - HEADER.size)
    if layout_bytes > limit:
        raise PayloadError(
            f"expected a layout of at most {limit} bytes, got {layout_bytes}."
        )
    if zeros != bytes(12) or not math.isfinite(published_s):
        raise PayloadError("expected zeros and a finite time in the header.")
    found = checksum(view)
    if found != expected:
        raise PayloadError(f"expected checksum {expected:08x}, got {found:08x}.")
    return _Header(layout_bytes, policy_version, learner_step, published_s)


def _table(layout_bytes: bytes) -> Table:
    """Returns the checked table of a layout's bytes."""
    layout = _parse(layout_bytes)
    specs = _specs(layout)
    offset = aligned(HEADER.size + len(layout_bytes))
    offsets, end = [], offset
    for spec in specs:
        offsets.append(offset)
        end = offset + spec.nbytes
        offset = aligned(end)
    total = aligned(end)
    if total > MAX_PAYLOAD_BYTES:
        raise PayloadError(
            f"expected a policy of at most {MAX_PAYLOAD_BYTES} bytes, got {total}."
        )
    return Table(layout_bytes, layout, specs, tuple(offsets), total)


def _parse(layout_bytes: bytes) -> Dict[str, Any]:
    """Returns the layout's JSON object; the text must be canonical and shallow."""
    if len(layout_bytes) > MAX_LAYOUT_BYTES:
        raise PayloadError(
            f"expected a layout of at most {MAX_LAYOUT_BYTES} bytes, got "
            f"{len(layout_bytes)}."
        )
    try:
        layout = json.loads(
            layout_bytes.decode("ascii"), parse_int=_integer, parse_constant=_constant
        )
        _check_depth(layout, MAX_LAYOUT_DEPTH)
        canonical = canonical_json(layout)
    except (ValueError, RecursionError) as error:
        raise PayloadError(f"expected a layout in JSON, got {error}.") from error
    if not isinstance(layout, dict) or canonical != layout_bytes:
        raise PayloadError("expected the layout to be one canonical JSON object.")
    return layout


def _integer(text: str) -> int:
    if len(text) > MAX_INTEGER_DIGITS:
        raise ValueError(f"an integer of {len(text)} digits")
    return int(text)


def _constant(text: str) -> None:
    raise ValueError(f"the number {text}")


def _check_depth(value: Any, depth: int) -> None:
    if not isinstance(value, (dict, list)):
        return
    if depth == 0:
        raise ValueError(f"more than {MAX_LAYOUT_DEPTH} levels")
    for item in value.values() if isinstance(value, dict) else value:
        _check_depth(item, depth - 1)


def _specs(layout: Dict[str, Any]) -> Tuple[TensorSpec, ...]:
    """Returns the layout's tensor table, each row checked.

    A payload needs no more of its layout; `policy.layout` reads and checks the rest.
    """
    rows = layout.get("tensors")
    if not isinstance(rows, list) or len(rows) > MAX_TENSORS:
        raise PayloadError(
            f"expected a list 'tensors' of at most {MAX_TENSORS} rows in the layout."
        )
    specs = tuple(_spec(row) for row in rows)
    if len({spec.name for spec in specs}) != len(specs):
        raise PayloadError("expected every tensor of the layout to have its own name.")
    return specs


def _spec(row: Any) -> TensorSpec:
    valid = isinstance(row, list) and len(row) == 3
    valid = valid and isinstance(row[0], str) and isinstance(row[1], str)
    valid = valid and row[1] in DTYPES and isinstance(row[2], list)
    valid = valid and len(row[2]) <= MAX_RANK
    if not valid or not all(_is_dimension(size) for size in row[2]):
        raise PayloadError(
            f"expected a tensor row [name, dtype out of {tuple(DTYPES)}, shape], got "
            f"{str(row)[:80]}."
        )
    return TensorSpec(row[0], row[1], tuple(row[2]))


def _is_dimension(size: Any) -> bool:
    return type(size) is int and 0 <= size <= MAX_PAYLOAD_BYTES
