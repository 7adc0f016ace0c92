"""Every kernel of the one list, against the reference, in every instruction set."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Callable, Dict

import kernel_programs as programs
import numpy as np
import pytest

from acme_quant import kernels

Case = Callable[[np.random.Generator, str], None]


def equal(built: programs.Built, rows: np.ndarray, isa: str) -> None:
    np.testing.assert_array_equal(built.run(rows, isa), built.expected(rows))


def close(built: programs.Built, rows: np.ndarray, isa: str, terms: int) -> None:
    # A float32 sum of `terms` products of numbers below 8, in any order: each of its
    # `terms` roundings is within 2**-24 of a partial sum below 64 * terms.
    bound = terms * terms * 64 * 2.0**-24
    np.testing.assert_allclose(
        built.run(rows, isa), built.expected(rows), rtol=0, atol=bound
    )


def linear_case(weight_format: str, **options: object) -> Case:
    def case(rng: np.random.Generator, isa: str) -> None:
        built = programs.linear(rng, 45, 13, weight_format, **options)
        rows = programs.observations(rng, 6, 45)
        if weight_format.startswith("int") and options.get("activation_max") != 0:
            equal(built, rows, isa)
        else:
            close(built, rows, isa, 45)

    return case


def row_case(kind: str, output_width: int = 21, **fields: object) -> Case:
    def case(rng: np.random.Generator, isa: str) -> None:
        built = programs.row_program(rng, kind, 21, output_width, **fields)
        equal(built, programs.observations(rng, 3, 21), isa)

    return case


def widening(weight_format: str) -> Case:
    # Weights of up to 127 * scale against observations: the sums are 127 times those
    # `close` allows for, which a scale below 1 / 16 brings down again.
    def case(rng: np.random.Generator, isa: str) -> None:
        built = programs.linear(rng, 45, 13, weight_format, activation_max=0)
        built.tensors[1] /= 16
        close(built, programs.observations(rng, 6, 45), isa, 45)

    return case


def activate(rng: np.random.Generator, isa: str) -> None:
    for activation in kernels.ACTIVATIONS:
        built = programs.row_program(rng, "unary", 21, 21, activation=activation)
        rows = programs.observations(rng, 3, 21)
        # The polynomials' errors are measured in test_kernels_rows.
        np.testing.assert_allclose(built.run(rows, isa), built.expected(rows), 1e-6)


def refuse_not_finite(rng: np.random.Generator, isa: str) -> None:
    built = programs.row_program(rng, "unary", 21, 21)
    for bad in (np.nan, np.inf, -np.inf):
        rows = programs.observations(rng, 3, 21)
        rows[1, rng.integers(21)] = bad
        with pytest.raises(ValueError, match="finite numbers, got NaN or Inf in row 1"):
            built.run(rows, isa)


def columns(rng: np.random.Generator) -> np.ndarray:
    return programs.observations(rng, 45, 13)


def column_range(rng: np.random.Generator, isa: str) -> None:
    w = columns(rng)
    with programs.using(isa):
        low, high = kernels.column_minmax(w)
        np.testing.assert_array_equal(kernels.column_absmax(w), np.abs(w).max(0))
    np.testing.assert_array_equal([low, high], [w.min(0), w.max(0)])


def quantize_columns(rng: np.random.Generator, isa: str) -> None:
    w, inverse = columns(rng), rng.uniform(10, 60, 13).astype(np.float32)
    out = np.full((13, 64), 99, np.int8)
    with programs.using(isa):
        kernels.quantize_columns(w, inverse, None, -127, 127, out)
    expected = np.clip(np.rint(w * inverse), -127, 127).T
    np.testing.assert_array_equal(out[:, :45], expected)
    np.testing.assert_array_equal(out[:, 45:], 0)


def transpose(dtype: type) -> Case:
    def case(rng: np.random.Generator, isa: str) -> None:
        w, out = columns(rng), np.full((13, 64), 99, dtype)
        with programs.using(isa):
            kernels.transpose_columns(w, out)
        np.testing.assert_array_equal(out[:, :45], w.T.astype(dtype))
        np.testing.assert_array_equal(out[:, 45:], 0)

    return case


def pack_int4(rng: np.random.Generator, isa: str) -> None:
    codes = programs.integer_codes(rng, 13, 45, 7, False)
    out = np.zeros((13, 32), np.uint8)
    with programs.using(isa):
        kernels.pack_int4(codes, out)
    np.testing.assert_array_equal(out, programs.reference.pack_int4(codes))


def crc32c(rng: np.random.Generator, isa: str) -> None:
    with programs.using(isa):
        # RFC 3720, B.4.
        assert kernels.crc32c(bytes(32)) == 0x8A9136AA
        assert kernels.crc32c(b"\xff" * 32) == 0x62A8AB43
        assert kernels.crc32c(bytes(range(32))) == 0x46DD794E
        assert kernels.crc32c(b"") == 0


def softmax(rng: np.random.Generator, isa: str) -> None:
    # exp is good to two units, and so are the terms of the sum.
    built = programs.row_program(rng, "softmax", 21, 21)
    rows = programs.observations(rng, 3, 21)
    np.testing.assert_allclose(built.run(rows, isa), built.expected(rows), rtol=1e-6)


def pair_case(kind: str) -> Case:
    return row_case(kind, other=0)


CASES: Dict[str, Case] = {
    "quantize_row": linear_case("int8", activation_max=127),
    "product_int8": linear_case("int8"),
    "product_int4": linear_case("int4"),
    "product_float32": linear_case("float32"),
    "product_float16": linear_case("float16"),
    "widen_int8": widening("int8"),
    "widen_int4": widening("int4"),
    "dequantize_row": linear_case("int8", zero_point=True),
    "copy_finite_row": refuse_not_finite,
    "activate_row": activate,
    "layer_norm_row": row_case("layer_norm", scale=21, bias=21, epsilon=1e-5),
    "affine_row": row_case("affine", scale=21, bias=1),
    "clip_row": row_case("clip", scale=21, bias=21),
    "add_rows": pair_case("add"),
    "subtract_rows": pair_case("subtract"),
    "multiply_rows": pair_case("multiply"),
    "maximum_rows": pair_case("maximum"),
    "minimum_rows": pair_case("minimum"),
    "softmax_row": softmax,
    "mean_row": row_case("mean", output_width=1),
    "argmax_row": row_case("argmax", output_width=1),
    "crc32c": crc32c,
    "column_range": column_range,
    "quantize_columns": quantize_columns,
    "transpose_float32": transpose(np.float32),
    "transpose_float16": transpose(np.float16),
    "pack_int4": pack_int4,
}


def test_every_kernel_has_a_case() -> None:
    assert set(CASES) == set(kernels.KERNELS)


@pytest.mark.parametrize("isa", kernels.ISAS)
@pytest.mark.parametrize("kernel", kernels.KERNELS)
def test_every_kernel_equals_the_reference(kernel: str, isa: str) -> None:
    CASES[kernel](np.random.default_rng(7), isa)


# --- The choice of kernels ------------------------------------------------------------


def chosen(isa: str) -> subprocess.CompletedProcess:
    code = "from acme_quant import kernels; print(kernels.isa())"
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "ACME_QUANT_ISA": isa},
        capture_output=True,
        text=True,
    )


def test_environment_chooses_the_kernels() -> None:
    for isa in kernels.ISAS:
        assert chosen(isa).stdout.strip() == isa


def test_unset_choice_takes_the_best_kernels() -> None:
    assert chosen("").stdout.strip() == kernels.ISAS[-1]


def test_unknown_choice_is_refused_in_one_sentence() -> None:
    error = chosen("vax").stderr.strip().splitlines()[-1]
    assert error.startswith("ValueError: ACME_QUANT_ISA: expected one of ('portable'")
    assert error.endswith("got 'vax'")


def test_lists_are_those_of_the_contract() -> None:
    assert kernels.FORMATS == ("float32", "float16", "int8", "int4")
    assert kernels.ACTIVATIONS[:3] == ("identity", "tanh", "relu")
    assert kernels.KINDS[0] == "linear"
    assert kernels.OP_DTYPE.itemsize == 4 * len(kernels.OP_FIELDS)
    assert kernels.OP_DTYPE.names == kernels.OP_FIELDS
