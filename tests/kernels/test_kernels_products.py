"""Products: integers equal in every instruction set, floats within their bound."""

from __future__ import annotations

import kernel_programs as programs
import numpy as np
import pytest

from acme_quant import kernels

SIZES = (*range(1, 66), 255, 256, 257, 4096)
OTHER_SIZES = (1, 2, 3, 4, 5, 8, 31, 64, 65, 257)
ISAS = pytest.mark.parametrize("isa", kernels.ISAS)
INTEGERS = pytest.mark.parametrize("weight_format", ["int8", "int4"])


def assert_exact(
    isa: str, seed: int, inputs: int, outputs: int, weight_format: str, **options: bool
) -> None:
    """Runs one linear operation of a batch of 1..9; every bit must be the reference's.

    Sums below 2**24 pass through float32 unrounded, so that with activations of a
    range that small the outputs are the sums themselves.
    """
    rng = np.random.default_rng([seed, inputs, outputs])
    wide = programs.largest_activation(inputs, bool(options.get("zero_point")))
    exact = max(1, 2**24 // (254 * inputs))
    for largest in (wide, min(127, wide), min(exact, wide)):
        built = programs.linear(
            rng, inputs, outputs, weight_format, activation_max=largest, **options
        )
        rows = programs.observations(rng, 1 + seed % 9, inputs)
        if options.get("extreme"):
            rows = np.sign(rows) * np.float32(3)
        np.testing.assert_array_equal(built.run(rows, isa), built.expected(rows))


@ISAS
@INTEGERS
def test_every_number_of_inputs_gives_exact_sums(isa: str, weight_format: str) -> None:
    for i, inputs in enumerate(SIZES):
        outputs = OTHER_SIZES[i % len(OTHER_SIZES)]
        assert_exact(isa, i, inputs, outputs, weight_format)


@ISAS
@INTEGERS
def test_every_number_of_outputs_gives_exact_sums(isa: str, weight_format: str) -> None:
    for i, outputs in enumerate(SIZES):
        inputs = OTHER_SIZES[i % len(OTHER_SIZES)]
        assert_exact(isa, i, inputs, outputs, weight_format)


@ISAS
@INTEGERS
@pytest.mark.parametrize("rows", range(1, 10))
def test_every_batch_gives_exact_sums(isa: str, weight_format: str, rows: int) -> None:
    for inputs, outputs in ((33, 5), (257, 66), (2049, 7)):
        assert_exact(isa, rows - 1, inputs, outputs, weight_format)


@ISAS
@INTEGERS
def test_extreme_codes_do_not_overflow(isa: str, weight_format: str) -> None:
    for i, inputs in enumerate((*range(1, 66, 4), 255, 256, 257, 4096)):
        assert_exact(isa, i, inputs, 5, weight_format, extreme=True)


@ISAS
@INTEGERS
def test_zero_points_are_exact(isa: str, weight_format: str) -> None:
    for i, inputs in enumerate((1, 17, 32, 65, 256, 4096)):
        assert_exact(isa, i, inputs, 9, weight_format, zero_point=True)
        assert_exact(isa, i, inputs, 9, weight_format, zero_point=True, bias=False)


@ISAS
@INTEGERS
def test_batches_beyond_one_block_are_exact(isa: str, weight_format: str) -> None:
    rng = np.random.default_rng(3)
    built = programs.linear(rng, 70, 70, weight_format)
    rows = programs.observations(rng, 150, 70)
    np.testing.assert_array_equal(built.run(rows, isa), built.expected(rows))


@ISAS
@INTEGERS
@pytest.mark.parametrize("inputs", [17, 64, 96, 257, 480, 481])
def test_many_short_rows_are_exact(isa: str, weight_format: str, inputs: int) -> None:
    for rows in (8, 9, 10, 11, 60, 61, 62, 63, 129):
        rng = np.random.default_rng([rows, inputs])
        built = programs.linear(rng, inputs, 15 + rows % 4, weight_format)
        x = programs.observations(rng, rows, inputs)
        np.testing.assert_array_equal(built.run(x, isa), built.expected(x))


@ISAS
@pytest.mark.parametrize("inputs", [512, 513, 544, 545, 576, 577, 1024, 2049, 4096])
@pytest.mark.parametrize("extreme", [False, True])
def test_many_long_rows_are_exact(isa: str, inputs: int, extreme: bool) -> None:
    for rows, outputs in ((16, 5), (17, 4), (33, 9)):
        rng = np.random.default_rng([rows, inputs])
        built = programs.linear(rng, inputs, outputs, "int8")
        x = programs.observations(rng, rows, inputs)
        if extreme:
            x = np.sign(x) * np.float32(3)
            codes = built.tensors[built.ops[0]["weight"]]
            codes[:, :inputs] = np.where(codes[:, :inputs] < 0, -127, 127)
        np.testing.assert_array_equal(built.run(x, isa), built.expected(x))


@ISAS
def test_zero_row_maps_to_the_bias(isa: str) -> None:
    built = programs.linear(np.random.default_rng(0), 40, 7)
    out = built.run(np.zeros((2, 40), np.float32), isa)
    np.testing.assert_array_equal(out, [built.tensors[2]] * 2)


@ISAS
def test_tiny_row_whose_scale_overflows_maps_to_the_bias(isa: str) -> None:
    built = programs.linear(np.random.default_rng(0), 40, 7)
    rows = np.full((1, 40), 1e-42, np.float32)
    np.testing.assert_array_equal(built.run(rows, isa), [built.tensors[2]])


@ISAS
@pytest.mark.parametrize("weight_format", ["float32", "int8", "int4"])
def test_overflow_within_a_policy_shows_in_the_action(
    isa: str, weight_format: str
) -> None:
    # A row that became Inf must not be quantized to zeros and look harmless.
    rng = np.random.default_rng(0)
    first = programs.row_program(rng, "affine", 40, 40, scale=1)
    first.tensors[0][:] = 3e38
    second = programs.linear(rng, 40, 7, weight_format)
    op = second.ops[0]
    op["input"], op["output"], op["weight"], op["bias"] = 1, 2, 1, len(second.tensors)
    op["scale"] = 2 if op["scale"] >= 0 else -1
    built = programs.Built(
        np.array([first.ops[0], op]), first.tensors + second.tensors, [40, 40, 7]
    )
    out = built.run(np.full((1, 40), 9, np.float32), isa)
    assert not np.isfinite(out).any()


@ISAS
@pytest.mark.parametrize("weight_format", ["float32", "float16"])
def test_float_products_are_within_their_bound(isa: str, weight_format: str) -> None:
    rng = np.random.default_rng(5)
    for i, inputs in enumerate((*range(1, 66, 3), 255, 256, 257, 2049, 4096)):
        outputs, rows = OTHER_SIZES[i % len(OTHER_SIZES)], 1 + i % 9
        built = programs.linear(rng, inputs, outputs, weight_format)
        x = programs.observations(rng, rows, inputs)
        # Higham 2002, section 3.1: any order of summation is within
        # n u / (1 - n u) of the sum of magnitudes; one more for the bias.
        weight = built.tensors[0][:, :inputs].astype(np.float64)
        magnitudes = np.abs(x) @ np.abs(weight).T + np.abs(built.tensors[1])
        bound = (inputs + 2) * 2.0**-24 * magnitudes
        exact = x.astype(np.float64) @ weight.T + built.tensors[1]
        assert (np.abs(built.run(x, isa) - exact) <= bound).all()


@ISAS
@pytest.mark.parametrize("weight_format", ["float32", "float16"])
def test_small_integers_in_floats_are_exact(isa: str, weight_format: str) -> None:
    rng = np.random.default_rng(6)
    for inputs, outputs, rows in ((1, 1, 1), (65, 6, 1), (257, 9, 5), (1500, 3, 2)):
        built = programs.linear(rng, inputs, outputs, weight_format, bias=False)
        built.tensors[0][:, :inputs] = rng.integers(-40, 41, (outputs, inputs))
        x = rng.integers(-40, 41, (rows, inputs)).astype(np.float32)
        np.testing.assert_array_equal(built.run(x, isa), built.expected(x))


@ISAS
def test_float16_widens_every_number_exactly(isa: str) -> None:
    halves = np.arange(65536, dtype=np.uint16)
    finite = halves[np.isfinite(halves.view(np.float16))]
    built = programs.linear(np.random.default_rng(0), 1, len(finite), "float16")
    built.tensors[0][:, 0] = finite.view(np.float16)
    built.tensors[1][:] = 0
    out = built.run(np.ones((1, 1), np.float32), isa)[0]
    np.testing.assert_array_equal(out, finite.view(np.float16).astype(np.float32))


@ISAS
@pytest.mark.parametrize("weight_format", kernels.FORMATS)
def test_convolution_equals_the_reference(isa: str, weight_format: str) -> None:
    rng = np.random.default_rng(8)
    for options in (
        {},
        dict(stride=(1, 3), pad=(0, 0), out=(7, 2)),
        # The last positions lie wholly outside of the image.
        dict(pad=(4, 3), out=(9, 12)),
    ):
        built = programs.conv2d(rng, weight_format, **options)
        rows = programs.observations(rng, 3, 9 * 7 * 3)
        out, expected = built.run(rows, isa), built.expected(rows)
        if weight_format.startswith("int"):
            np.testing.assert_array_equal(out, expected)
        else:
            # 18 products of numbers below 8.
            np.testing.assert_allclose(out, expected, rtol=0, atol=18 * 18 * 64 / 2**24)


def test_whole_policies_have_the_same_bits_in_every_instruction_set() -> None:
    rng = np.random.default_rng(9)
    for weight_format in ("int8", "int4"):
        built = programs.mlp(rng, [17, 70, 66, 6], weight_format)
        rows = programs.observations(rng, 70, 17)
        outs = [built.run(rows, isa) for isa in kernels.ISAS]
        for out in outs[1:]:
            np.testing.assert_array_equal(out.view(np.int32), outs[0].view(np.int32))
        # The reference's tanh is another one: a last bit may move a code by one.
        np.testing.assert_allclose(outs[0], built.expected(rows), rtol=0, atol=1e-4)
