"""Program: what it takes, and what it refuses."""

from __future__ import annotations

from typing import Any

import kernel_programs as programs
import numpy as np
import pytest
from kernel_programs import Built, good, operation

from acme_quant import kernels


def changed(index: int, **fields: Any) -> Built:
    built = good()
    for name, value in fields.items():
        built.ops[index][name] = value
    return built


def test_good_layout_is_taken() -> None:
    program = good().program()
    assert (program.input_width, program.output_width) == (5, 3)
    assert program.isa == kernels.isa()
    assert program.activation_bytes == 0


@pytest.mark.parametrize(
    ("index", "fields", "message"),
    [
        (0, {"kind": 16}, r"operation 0: expected a kind below 16, got 16"),
        (0, {"kind": -1}, r"operation 0: expected a kind below 16, got -1"),
        (0, {"activation": 8}, "expected activation between 0 and 7, got 8"),
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
        (0, {"activation_max": 32641}, "expected activation_max between 0 and 32640"),
        (0, {"activation_max": -1}, "expected activation_max between 0 and 32640"),
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
        limit = min(32640, (2**31 - 1) // (largest * inputs))
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
