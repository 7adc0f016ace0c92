from __future__ import annotations

import json
import pathlib
import struct
from typing import Any

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

from acme_quant import kernels
from acme_quant.policy import payload
from acme_quant.policy.payload import PayloadError, TensorSpec

SPECS = (
    TensorSpec("0.weight", "int8", (3, 32)),
    TensorSpec("0.scale", "float32", (3,)),
    TensorSpec("empty", "uint8", (0, 5)),
)
LAYOUT = {"ops": [[0, 1, -1]], "quantizer": "int8"}


def sealed(version: int = 5, step: int = 70) -> payload.Payload:
    blank = payload.blank(payload.plan(LAYOUT, SPECS))
    for index, tensor in enumerate(blank.tensors()):
        tensor[...] = np.arange(tensor.size).reshape(tensor.shape) + index
    return payload.seal(blank, version, step, published_s=12.5)


GOOD = bytes(sealed().buffer)
HUGE_PAGES = pathlib.Path("/sys/kernel/mm/transparent_hugepage")


def resealed(data: bytes, **fields: int) -> bytes:
    """Returns `data` with header fields changed and a checksum that holds."""
    places = {
        "magic": (0, "<8s"),
        "format": (8, "<I"),
        "layout": (12, "<I"),
        "total": (32, "<Q"),
        "published": (40, "<d"),
        "reserved": (48, "<I"),
    }
    buffer = bytearray(data)
    for name, value in fields.items():
        offset, code = places[name]
        struct.pack_into(code, buffer, offset, value)
    crc = kernels.crc32c(bytes(buffer[64:]), kernels.crc32c(bytes(buffer[:60])))
    struct.pack_into("<I", buffer, 60, crc)
    return bytes(buffer)


def with_layout(text: bytes, extra: int = 4096) -> bytes:
    """Returns a payload of this layout, whole in every other respect."""
    size = 64 + len(text) + extra
    header = struct.pack(
        "<8sIIQQQd12sI", payload.MAGIC, 1, len(text), 1, 1, size, 0.0, bytes(12), 0
    )
    return resealed(header + text + bytes(extra))


def with_tensors(rows: Any) -> bytes:
    return with_layout(payload.canonical_json({"tensors": rows}))


def test_decoding_gives_what_was_sealed() -> None:
    decoded = payload.decode(GOOD)
    assert (decoded.policy_version, decoded.learner_step) == (5, 70)
    assert decoded.published_s == 12.5 and decoded.nbytes == len(GOOD)
    assert {**LAYOUT, "tensors": decoded.layout["tensors"]} == decoded.layout
    for got, put in zip(decoded.tensors(), sealed().tensors()):
        assert got.dtype == put.dtype
        np.testing.assert_array_equal(got, put)


def test_tensors_are_views_of_the_received_bytes_and_read_only() -> None:
    buffer = np.frombuffer(bytearray(GOOD), np.uint8)
    tensor = payload.decode(buffer).tensors()[0]
    assert np.shares_memory(tensor, buffer) and not tensor.flags.writeable


def test_every_tensor_begins_at_a_multiple_of_64() -> None:
    table = sealed().table
    assert all(offset % 64 == 0 for offset in table.offsets)
    assert table.total_bytes % 64 == 0
    spans = table.spans()
    assert spans.dtype == np.int64 and spans[0, 1] == 3 * 32
    assert sealed().tensors()[0].ctypes.data % 64 == 0


def test_versions_of_one_policy_share_their_layout() -> None:
    first, second = payload.decode(GOOD), sealed(6, 80)
    again = payload.decode(bytes(second.buffer), table=first.table)
    assert again.table is first.table and again.policy_version == 6


def test_a_buffer_is_written_again_for_the_next_version() -> None:
    room = sealed()
    blank = payload.blank(room.table, room.buffer)
    assert bytes(payload.seal(blank, 5, 70, 12.5).buffer) == GOOD
    with pytest.raises(ValueError, match="writable"):
        payload.blank(room.table, room.buffer.toreadonly())
    with pytest.raises(ValueError, match="bytes"):
        payload.blank(room.table, room.buffer[:-64])


def test_an_unaligned_buffer_is_copied() -> None:
    shifted = memoryview(b"x" + GOOD)[1:]
    decoded = payload.decode(shifted)
    assert decoded.tensors()[0].ctypes.data % 16 == 0
    assert bytes(decoded.buffer) == GOOD


@pytest.mark.parametrize("nbytes", [64, payload.HUGE_PAGE, payload.HUGE_PAGE + 64])
def test_a_buffer_is_zero_aligned_and_of_the_size_asked_for(nbytes: int) -> None:
    buffer = payload.aligned_buffer(nbytes)
    array = np.frombuffer(buffer, np.uint8)
    assert buffer.nbytes == nbytes and not buffer.readonly and not array.any()
    assert array.ctypes.data % payload.ALIGNMENT == 0


@pytest.mark.skipif(not HUGE_PAGES.exists(), reason="the kernel has no huge pages")
def test_a_large_buffer_asks_for_huge_pages() -> None:
    buffer = payload.aligned_buffer(4 * payload.HUGE_PAGE)
    address = np.frombuffer(buffer, np.uint8).ctypes.data
    assert "hg" in memory_flags(address)


def memory_flags(address: int) -> list[str]:
    """Returns the kernel's flags of the mapping that holds `address`."""
    inside = False
    for line in pathlib.Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if "-" in first and not first.endswith(":"):
            start, end = (int(part, 16) for part in first.split("-"))
            inside = start <= address < end
        elif inside and first == "VmFlags:":
            return rest
    raise LookupError(f"no mapping holds {address:x}")


def test_another_format_version_is_named_with_the_expected_one() -> None:
    with pytest.raises(PayloadError, match="expected payload format 1, got format 7"):
        payload.decode(resealed(GOOD, format=7))


@pytest.mark.parametrize(
    "fields",
    [
        {"magic": b"ACMEQNT0"},
        {"layout": len(GOOD)},
        {"layout": 2**32 - 1},
        {"layout": 0},
        {"layout": 3},
        {"total": 0},
        {"total": 2**64 - 1},
        {"total": len(GOOD) - 1},
        {"published": float("nan")},
        {"published": float("inf")},
        {"reserved": 1},
    ],
    ids=str,
)
def test_a_wrong_header_is_refused(fields: dict) -> None:
    with pytest.raises(PayloadError, match="expected"):
        payload.decode(resealed(GOOD, **fields))


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        7,
        "text",
        b"",
        b"ACMEQNT1",
        [1, 2],
        np.zeros(100, np.float32),
        np.zeros((10, 10), np.uint8),
        np.zeros(200, np.uint8)[::2],
        np.array(None),
    ],
    ids=repr,
)
def test_what_is_not_a_run_of_bytes_is_refused(wrong: Any) -> None:
    with pytest.raises(PayloadError, match="expected"):
        payload.decode(wrong)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"tensors":{}}',
        b'{"tensors": []}',
        b'{"tensors":[],"a":1}',
        b'{"tensors":[],"tensors":[]}',
        b'{"a":NaN,"tensors":[]}',
        b'{"a":1e999,"tensors":[]}',
        b'{"a":' + b"9" * 5000 + b',"tensors":[]}',
        b'{"a":' + b"[" * 20 + b"]" * 20 + b',"tensors":[]}',
        b"[" * 500_000,
        b'{"a":"\xff","tensors":[]}',
        b'{"a":"\xc3\xa9","tensors":[]}',
        b'{"tensors":[]}\n',
        b'{"tensors":[' + b"0," * 5000 + b"0]}",
    ],
    ids=lambda text: str(text[:24]),
)
def test_a_layout_that_is_not_canonical_json_is_refused(text: bytes) -> None:
    with pytest.raises(PayloadError, match="expected"):
        payload.decode(with_layout(text))


@pytest.mark.parametrize(
    "rows",
    [
        [["a", "int8", [8]], ["a", "int8", [8]]],
        [["a", "int8"]],
        [["a", "object", [8]]],
        [["a", "int64", [8]]],
        [["a", ["int8"], [8]]],
        [[1, "int8", [8]]],
        [["a", "int8", 8]],
        [["a", "int8", [-8]]],
        [["a", "int8", [True]]],
        [["a", "int8", [8.0]]],
        [["a", "int8", [1, 1, 1, 1, 1]]],
        [["a", "int8", [2**31 - 1] * 4]],
        [["a", "int8", [2**63]]],
        [["a", "float32", [0, 2**31], 1]],
        [["a", "int8", [8]]],
        "tensors",
        None,
    ],
    ids=str,
)
def test_a_wrong_tensor_table_is_refused(rows: Any) -> None:
    with pytest.raises(PayloadError, match="expected"):
        payload.decode(with_tensors(rows))


def test_more_tensors_than_allowed_are_refused() -> None:
    rows = [[str(index), "int8", [0]] for index in range(payload.MAX_TENSORS + 1)]
    with pytest.raises(PayloadError, match="4096"):
        payload.decode(with_tensors(rows))


def test_a_policy_larger_than_a_payload_may_be_is_refused_when_planned() -> None:
    with pytest.raises(PayloadError, match="at most"):
        payload.plan({}, [TensorSpec("a", "float32", (1 << 15, 1 << 15))])


def test_a_message_is_one_sentence() -> None:
    with pytest.raises(PayloadError) as error:
        payload.decode(with_tensors([["x" * 5000, "int9", []]]))
    assert len(str(error.value)) < 250 and str(error.value).count("\n") == 0


@hypothesis.given(st.integers(0, len(GOOD) - 1), st.integers(1, 255))
def test_any_changed_byte_is_refused(place: int, change: int) -> None:
    data = bytearray(GOOD)
    data[place] ^= change
    with pytest.raises(PayloadError):
        payload.decode(bytes(data))


@hypothesis.given(st.integers(0, len(GOOD) - 1), st.binary(max_size=300))
def test_a_truncated_or_extended_payload_is_refused(length: int, tail: bytes) -> None:
    with pytest.raises(PayloadError):
        payload.decode(GOOD[:length])
    with pytest.raises(PayloadError):
        payload.decode(GOOD + tail + b"x")


@hypothesis.given(
    st.lists(st.tuples(st.integers(0, 59), st.integers(0, 255)), max_size=6)
)
def test_a_forged_header_never_raises_anything_else(changes: list) -> None:
    data = bytearray(GOOD)
    for place, value in changes:
        data[place] = value
    decode_or_refuse(resealed(bytes(data)))


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["int8", "float32", "tensors"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["tensors", "ops", "a"]), inner, max_size=3)
    ),
    max_leaves=20,
)


@hypothesis.given(JSON)
def test_a_forged_layout_never_raises_anything_else(value: Any) -> None:
    decode_or_refuse(with_layout(json.dumps(value, separators=(",", ":")).encode()))


@hypothesis.given(JSON)
def test_forged_tensor_rows_never_raise_anything_else(value: Any) -> None:
    text = json.dumps({"tensors": [value]}, separators=(",", ":"), sort_keys=True)
    decode_or_refuse(with_layout(text.encode()))


@hypothesis.given(st.binary(max_size=400))
def test_random_bytes_never_raise_anything_else(data: bytes) -> None:
    decode_or_refuse(data)
    decode_or_refuse(with_layout(data))


def decode_or_refuse(data: bytes) -> None:
    """Decodes; what is accepted must be readable to its last byte."""
    try:
        decoded = payload.decode(data)
    except PayloadError:
        return
    assert decoded.table.spans().sum(axis=1).max(initial=0) <= len(data)
    assert all(tensor.tobytes() is not None for tensor in decoded.tensors())
