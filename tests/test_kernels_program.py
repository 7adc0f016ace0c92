"""Program: what it refuses, from whom it may be called, and that it never crashes."""

from __future__ import annotations

import resource
import threading
from typing import Any, Callable, Iterator

import kernel_programs as programs
import numpy as np
import pytest
from kernel_programs import Built, operation

from acme_quant import kernels


def good() -> Built:
    """Returns linear 5 -> 3, layer norm, and a sum with the first value's columns."""
    rng = np.random.default_rng(0)
    built = programs.linear(rng, 5, 3)
    ops = [
        built.ops[0],
        operation("layer_norm", input=1, output=2, scale=2, bias=2, epsilon=1e-5),
        operation("copy", input=0, output=3, inputs=3, input_offset=1),
        operation("add", input=2, other=3, output=4),
    ]
    return Built(np.array(ops), built.tensors, [5, 3, 3, 3, 3])


def changed(index: int, **fields: Any) -> Built:
    built = good()
    for name, value in fields.items():
        built.ops[index][name] = value
    return built


# --- Construction ---------------------------------------------------------------------


def test_good_layout_is_taken() -> None:
    program = good().program()
    assert (program.input_width, program.output_width) == (5, 3)
    assert program.isa == kernels.isa()
    assert program.activation_bytes == 0


@pytest.mark.parametrize(
    ("index", "fields", "message"),
    [
        (0, {"kind": 12}, r"operation 0: expected a kind below 12, got 12"),
        (0, {"kind": -1}, r"operation 0: expected a kind below 12, got -1"),
        (0, {"activation": 7}, "expected activation between 0 and 6, got 7"),
        (0, {"input": 5}, "expected input between 0 and 4, got 5"),
        (0, {"input": -1}, "expected input between 0 and 4, got -1"),
        (0, {"input": 2}, "expected input to be written before, but value 2 has 0 of"),
        (0, {"output": 0}, "expected output between 1 and 4, got 0"),
        (0, {"output": 9}, "expected output between 1 and 4, got 9"),
        (1, {"output": 1}, "expected output_offset 3, got 0"),
        (0, {"weight": 3}, "expected weight bytes between 0 and 2, got 3"),
        (0, {"weight": -1}, "expected weight bytes between 0 and 2, got -1"),
        (0, {"weight": 1}, "expected weight bytes 96, got 12"),
        (0, {"scale": -1}, "expected scale bytes between 0 and 2, got -1"),
        (0, {"bias": 0}, "expected bias bytes 12, got 96"),
        (0, {"zero_point": 0}, "expected zero_point bytes 12, got 96"),
        (0, {"format": 4}, "expected format between 0 and 3, got 4"),
        (0, {"format": 0}, "expected weight bytes 384, got 96"),
        (0, {"inputs": 4}, "expected inputs 5, got 4"),
        (0, {"outputs": 4}, "expected weight bytes 128, got 96"),
        (0, {"activation_max": 32768}, "expected activation_max between 0 and 32767"),
        (0, {"activation_max": -1}, "expected activation_max between 0 and 32767"),
        (0, {"input_offset": 1}, "expected input_offset 0, got 1"),
        (0, {"output_offset": 1}, "expected output_offset 0, got 1"),
        (1, {"epsilon": np.nan}, "expected a finite epsilon of at least 0, got nan"),
        (1, {"epsilon": -1}, "expected a finite epsilon of at least 0, got -1"),
        (1, {"scale": 0}, "expected scale bytes 12, got 96"),
        (2, {"inputs": 6}, "expected inputs between 1 and 4, got 6"),
        (2, {"inputs": 0}, "expected inputs between 1 and 4, got 0"),
        (2, {"input_offset": 5}, "expected input_offset between 0 and 4, got 5"),
        (2, {"input_offset": -1}, "expected input_offset between 0 and 4, got -1"),
        (2, {"output_offset": 1}, "expected output_offset 0, got 1"),
        (3, {"other": -1}, "expected other between 0 and 4, got -1"),
        (3, {"other": 0}, "expected width of other 3, got 5"),
    ],
)
def test_wrong_operation_is_refused(index: int, fields: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        changed(index, **fields).program()
    assert str(caught.value).startswith(f"operation {index}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stride_height": 0}, "expected stride_height between 1 and 65536, got 0"),
        ({"pad_left": -1}, "expected pad_left between 0 and 65536, got -1"),
        ({"out_width": 65537}, "expected out_width between 1 and 65536, got 65537"),
        ({"height": 8}, "expected input width 168, got 189"),
        ({"kernel_width": 3}, "expected inputs 27, got 18"),
        ({"out_height": 6}, "expected output width 240, got 200"),
    ],
)
def test_wrong_convolution_is_refused(fields: dict, message: str) -> None:
    built = programs.conv2d(np.random.default_rng(0))
    for name, value in fields.items():
        built.ops[0][name] = value
    with pytest.raises(ValueError, match=message):
        built.program()


@pytest.mark.parametrize("zero_point", [False, True])
@pytest.mark.parametrize("weight_format", ["int8", "int4"])
def test_activations_that_could_overflow_are_refused(
    weight_format: str, zero_point: bool
) -> None:
    # The engine sums int4 codes as code + 8.
    largest = {"int8": 127, "int4": 15}[weight_format] * (2 if zero_point else 1)
    for inputs in (600, 5000):
        limit = min(32767, (2**31 - 1) // (largest * inputs))
        built = programs.linear(
            np.random.default_rng(0), inputs, 2, weight_format, zero_point=zero_point
        )
        built.ops[0]["activation_max"] = limit
        built.program()
        built.ops[0]["activation_max"] = limit + 1
        with pytest.raises(ValueError, match=f"activation_max between 0 and {limit}"):
            built.program()


def construct(**changes: Any) -> kernels.Program:
    built = good()
    arguments = {
        "ops": built.ops,
        "tensors": built.table(),
        "value_widths": np.array(built.value_widths, np.int32),
        "payload_bytes": built.payload().nbytes,
    }
    return kernels.Program(**{**arguments, **changes})


TABLE = good().table()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ops": good().ops[:0]}, "expected between 1 and 65536 operations, got 0"),
        ({"ops": np.zeros(4, "i4")}, "ops: expected a contiguous vector of OP_DTYPE"),
        ({"ops": good().ops[::2]}, "ops: expected a contiguous vector of OP_DTYPE"),
        ({"ops": None}, "ops: expected .* got NoneType"),
        ({"tensors": TABLE.astype("i4")}, "tensors: expected a C-contiguous int64"),
        ({"tensors": TABLE.reshape(-1)}, "tensors: expected a C-contiguous int64"),
        ({"tensors": np.zeros((2, 3), "i8")}, "tensors: expected 2 in dimension 1"),
        ({"tensors": TABLE + 1}, "tensor 0: expected it .* at a multiple of 4, got"),
        ({"tensors": TABLE - 4}, "tensor 0: expected it within the payload"),
        ({"tensors": TABLE * 2**40}, "tensor 0: expected it within the payload"),
        ({"tensors": TABLE + [2**63 - 64, 0]}, "tensor 0: expected it within"),
        ({"payload_bytes": 100}, "tensor 1: expected it within the payload's 100"),
        ({"payload_bytes": -1}, "expected payload_bytes of at least 0, got -1"),
        ({"value_widths": np.array([5], "i4")}, "expected between 2 and 65536 values"),
        ({"value_widths": np.array([5, 0], "i4")}, "value 1: expected a width between"),
        ({"value_widths": np.array([5, -3], "i4")}, "value 1: expected a width"),
        ({"value_widths": np.full(9, 2**24, "i4")}, "expected values of at most"),
        ({"value_widths": np.array([5.0, 3])}, "value_widths: expected a contiguous"),
    ],
)
def test_wrong_layout_is_refused(changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        construct(**changes)


def test_value_must_be_whole_before_it_is_read() -> None:
    with pytest.raises(ValueError, match="operation 3 .* has 2 of its 3 columns"):
        changed(2, inputs=2).program()


def test_result_must_be_whole() -> None:
    ops = [operation("copy", inputs=2)]
    with pytest.raises(ValueError, match="value 1 has 2 of its 3 columns"):
        Built(np.array(ops), [], [5, 3]).program()


def test_program_keeps_nothing_of_its_arguments() -> None:
    built = good()
    ops, table = built.ops.copy(), built.table()
    widths = np.array(built.value_widths, np.int32)
    payload = built.payload()
    program = kernels.Program(ops, table, widths, payload.nbytes)
    ops["input"], table[:], widths[:] = 77, 1 << 40, 9999
    out, rows = np.empty((2, 3), np.float32), np.ones((2, 5), np.float32)
    program.run(payload, rows, out)
    np.testing.assert_array_equal(out, good().run(rows))


# --- Running --------------------------------------------------------------------------

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
        construct()
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
