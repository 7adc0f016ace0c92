"""Program.run: what it refuses, from whom it may be called, that it never crashes."""

from __future__ import annotations

import resource
import threading
from typing import Any, Callable, Iterator

import kernel_programs as programs
import numpy as np
import pytest
from kernel_programs import Built, good, operation

from acme_quant import kernels

ROWS = np.ones((2, 5), np.float32)
OUT = np.empty((2, 3), np.float32)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"payload": bytes(8)}, "payload: expected at least 256 bytes, got 8"),
        ({"payload": "text"}, "payload: expected a contiguous buffer, got str"),
        ({"payload": good().payload()[::2]}, "payload: expected a contiguous buffer"),
        ({"rows": ROWS.astype("f8")}, "observations: expected .* of format 'd'"),
        ({"rows": ROWS[0]}, "observations: expected .* got 1 dimensions"),
        ({"rows": ROWS[:, ::2]}, "observations: expected a C-contiguous float32"),
        (
            {"rows": ROWS[:, :4].copy()},
            "observations: expected 5 in dim.* got 4",
        ),
        ({"rows": ROWS.astype(">f4")}, "observations: expected .* of format '>f'"),
        ({"rows": [[1.0] * 5]}, "observations: expected .* got list"),
        ({"out": OUT[:1]}, "out: expected 2 in dimension 0, got 1"),
        (
            {"out": np.empty((2, 4), np.float32)},
            "out: expected 3 in dim.* got 4",
        ),
        ({"out": bytes(24)}, "out: expected writable and"),
        ({"out": ROWS[:, :3]}, "out: expected writable and a C-contiguous float32"),
    ],
)
def test_wrong_run_is_refused(changes: dict, message: str) -> None:
    built = good()
    arguments = {"payload": built.payload(), "rows": ROWS, "out": OUT, **changes}
    with pytest.raises(ValueError, match=message):
        built.program().run(*arguments.values())


def test_memory_of_another_argument_is_no_output() -> None:
    built = Built(operation("unary"), [], [5, 5])
    rows = ROWS.copy()
    with pytest.raises(ValueError, match="out: expected memory of its own"):
        built.program().run(b"", rows, rows)


def test_payload_at_an_odd_place_is_refused() -> None:
    built = good()
    room = np.zeros(built.payload().nbytes + 64, np.uint8)
    start = 1 - room.ctypes.data % 4 + 4
    with pytest.raises(ValueError, match="payload: expected it to start at a multiple"):
        built.program().run(room[start:], ROWS, OUT)


def test_payload_at_a_multiple_of_four_is_read() -> None:
    built, out = good(), OUT.copy()
    payload = built.payload()
    room = np.zeros(payload.nbytes + 64, np.uint8)
    start = 4 + -room.ctypes.data % 64
    room[start : start + len(payload)] = payload
    built.program().run(room[start:], ROWS, out)
    np.testing.assert_array_equal(out, built.run(ROWS))


def test_empty_batch_gives_nothing() -> None:
    assert good().run(np.zeros((0, 5), np.float32)).shape == (0, 3)


def test_bad_row_of_a_later_block_is_named() -> None:
    rows = np.zeros((200, 5), np.float32)
    rows[150, 3] = np.nan
    with pytest.raises(ValueError, match="got NaN or Inf in row 150"):
        good().run(rows)


def test_rows_do_not_depend_on_their_batch() -> None:
    rng = np.random.default_rng(1)
    built = programs.mlp(rng, [17, 40, 6])
    rows = programs.observations(rng, 130, 17)
    whole = built.run(rows)
    for start, stop in ((0, 1), (5, 8), (63, 66), (100, 130)):
        np.testing.assert_array_equal(
            built.run(rows[start:stop].copy()), whole[start:stop]
        )


def test_threads_share_a_program() -> None:
    rng = np.random.default_rng(2)
    # Wide enough that the work runs without the GIL.
    built = programs.mlp(rng, [17, 512, 512, 6])
    program, payload = built.program(), built.payload()
    rows = programs.observations(rng, 16, 17)
    expected, wrong = built.run(rows), []

    def call(i: int) -> None:
        out = np.empty((1 + i, 6), np.float32)
        for _ in range(30):
            program.run(payload, rows[: 1 + i].copy(), out)
            if not np.array_equal(out, expected[: 1 + i]):
                wrong.append(i)

    threads = [threading.Thread(target=call, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_memory_does_not_grow_over_100000_calls() -> None:
    rng = np.random.default_rng(3)
    built = programs.mlp(rng, [17, 64, 64, 6])
    program, payload = built.program(), built.payload()
    rows, out = programs.observations(rng, 1, 17), np.empty((1, 6), np.float32)
    nan = np.full((1, 17), np.nan, np.float32)

    def refused() -> None:
        with pytest.raises(ValueError):
            program.run(payload, nan, out)

    def calls(count: int) -> None:
        for _ in range(count):
            program.run(payload, rows, out)

    calls(1000), refused()
    held, before = program.activation_bytes, peak_memory_kib()
    calls(100_000)
    for _ in range(1000):
        refused()
        good().program()
    assert program.activation_bytes == held
    assert peak_memory_kib() - before < 1024


def peak_memory_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def test_scratch_memory_is_bounded_by_the_block() -> None:
    built = programs.mlp(np.random.default_rng(4), [17, 64, 6])
    program, payload = built.program(), built.payload()
    sizes = []
    for rows in (1, 128, 1000):
        program.run(
            payload, np.zeros((rows, 17), "f4"), np.empty((rows, 6), np.float32)
        )
        sizes.append(program.activation_bytes)
    assert sizes[0] < 16_000
    assert sizes[0] < sizes[1] == sizes[2] < 200_000


# --- Fuzzing --------------------------------------------------------------------------

NUMBERS = (-(2**31), -2, -1, 0, 1, 2, 3, 5, 31, 32, 127, 4096, 65536, 2**24, 2**31 - 1)


def attempt(call: Callable[[], Any]) -> bool:
    """Returns whether the call was taken; it may only refuse by these errors."""
    try:
        call()
    except (ValueError, TypeError, MemoryError):
        return False
    return True


def fuzzed_program(rng: np.random.Generator, built: Built) -> Callable[[], Any]:
    ops, table = built.ops.copy(), built.table()
    widths = np.array(built.value_widths, np.int32)
    payload = rng.integers(0, 256, built.payload().nbytes).astype(np.uint8)
    for _ in range(rng.integers(1, 4)):
        place = rng.integers(6)
        number = NUMBERS[rng.integers(len(NUMBERS))]
        if place < 4:
            name = kernels.OP_FIELDS[rng.integers(len(kernels.OP_FIELDS))]
            ops[rng.integers(len(ops))][name] = number
        elif place == 4 and table.size:
            table[rng.integers(len(table)), rng.integers(2)] = number
        elif abs(number) <= 2**12:
            widths[rng.integers(len(widths))] = number

    def call() -> None:
        program = kernels.Program(ops, table, widths, payload.nbytes)
        rows = rng.normal(size=(3, program.input_width)).astype(np.float32)
        program.run(payload, rows, np.empty((3, program.output_width), np.float32))

    return call


@pytest.mark.parametrize("isa", kernels.ISAS)
def test_fuzzed_layouts_are_refused_or_run(isa: str) -> None:
    rng = np.random.default_rng(5)
    seeds = [
        good(),
        programs.conv2d(rng),
        programs.conv2d(rng, "float32"),
        programs.linear(rng, 40, 9, "int4", zero_point=True),
        programs.linear(rng, 40, 9, activation_max=0),
        programs.linear(rng, 40, 9, "float16"),
        programs.row_program(rng, "clip", 9, 9, scale=9, bias=1),
        programs.mlp(rng, [9, 33, 4]),
    ]
    with programs.using(isa):
        taken = [
            attempt(fuzzed_program(rng, seeds[i % len(seeds)])) for i in range(3000)
        ]
    assert 100 < sum(taken) < 2900


def test_fuzzed_arguments_are_refused_or_run() -> None:
    rng = np.random.default_rng(6)
    built = good()
    program, payload = built.program(), built.payload()
    things = [
        *(None, 3, "text", b"", bytes(500), [1.0], object(), payload, payload[:9]),
        *(ROWS, ROWS.T, ROWS[0], ROWS.astype("f8"), ROWS.astype(">f4"), OUT, OUT.T),
        *(np.zeros((2, 3, 4), np.float32), np.zeros((), np.float32), built.ops),
        *(np.zeros((0, 5), np.float32), np.zeros((2, 3), object), memoryview(OUT)),
    ]

    def calls(a: Any, b: Any, c: Any) -> Iterator[Callable[[], Any]]:
        yield lambda: program.run(a, b, c)
        yield lambda: kernels.Program(a, b, c, 300)
        yield lambda: kernels.transpose_columns(a, b)
        yield lambda: kernels.pack_int4(a, b)
        yield lambda: kernels.column_absmax(a)
        yield lambda: kernels.crc32c(a, b)
        yield lambda: kernels.quantize_columns(a, b, None, -7, 7, c)

    for _ in range(3000):
        for call in calls(*(things[i] for i in rng.integers(len(things), size=3))):
            attempt(call)
