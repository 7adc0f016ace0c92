"""Operations over rows: the same bits everywhere, the functions to their last bits."""

from __future__ import annotations

from typing import Dict, Tuple

import kernel_programs as programs
import numpy as np
import pytest

from acme_quant import kernels
from acme_quant.kernels import reference

ISAS = pytest.mark.parametrize("isa", kernels.ISAS)
WIDTHS = (*range(1, 20), 63, 64, 65, 257)

# Units in the last place of the float64 result rounded to float32, and an absolute
# part for functions that cancel near a zero of theirs. The polynomials are good to
# about one unit, each float32 operation after them adds half of one.
UNITS: Dict[str, Tuple[float, float]] = {
    "identity": (0, 0),
    "tanh": (6, 0),
    "relu": (0, 0),
    "elu": (3, 0),
    "selu": (4, 0),
    "sigmoid": (4, 1e-38),
    "softplus": (6, 1e-37),
    "erf": (6, 1e-38),
}


def arguments() -> np.ndarray:
    """Returns float32 [1, n]: a fine grid, all magnitudes, and the largest numbers."""
    grid = np.linspace(-30, 30, 30001)
    powers = np.ldexp(1.0, np.arange(-140, 128, 2)) * 1.3
    extremes = [0.0, -0.0, 86.9, 87.1, 88.1, 104.0, 3e38]
    both = np.concatenate([powers, -powers, extremes, np.negative(extremes)])
    return np.concatenate([grid, both]).astype(np.float32)[None]


def applied(activation: str, x: np.ndarray, isa: str) -> np.ndarray:
    built = programs.row_program(
        np.random.default_rng(0), "unary", x.shape[1], x.shape[1], activation=activation
    )
    return built.run(x, isa)


@ISAS
@pytest.mark.parametrize("activation", kernels.ACTIVATIONS)
def test_activation_is_good_to_its_last_bits(activation: str, isa: str) -> None:
    x = arguments()
    exact = reference.activate(x, activation)
    units, absolute = UNITS[activation]
    allowed = units * np.spacing(np.abs(exact)) + absolute
    error = np.abs(applied(activation, x, isa).astype(np.float64) - exact)
    worst = int(np.argmax(error - allowed))
    assert error[0, worst] <= allowed[0, worst], (x[0, worst], exact[0, worst])


@pytest.mark.parametrize("activation", kernels.ACTIVATIONS)
def test_activation_has_the_same_bits_everywhere(activation: str) -> None:
    x = arguments()
    results = [applied(activation, x, isa).view(np.int32) for isa in kernels.ISAS]
    for result in results[1:]:
        np.testing.assert_array_equal(result, results[0])


@ISAS
def test_tanh_stays_within_one(isa: str) -> None:
    y = applied("tanh", arguments(), isa)
    assert np.abs(y).max() == 1.0


@ISAS
@pytest.mark.parametrize("kind", ["affine", "clip"])
def test_parameters_may_be_a_vector_or_one_number_or_none(kind: str, isa: str) -> None:
    rng = np.random.default_rng(1)
    for width in WIDTHS:
        for fields in (
            {},
            {"scale": width},
            {"bias": 1},
            {"scale": 1, "bias": width},
        ):
            built = programs.row_program(rng, kind, width, width, **fields)
            rows = programs.observations(rng, 2, width)
            np.testing.assert_array_equal(built.run(rows, isa), built.expected(rows))


@ISAS
def test_layer_norm_sums_in_the_order_of_the_reference(isa: str) -> None:
    rng = np.random.default_rng(2)
    for width in WIDTHS:
        for fields in ({}, {"scale": width, "bias": width}, {"scale": width}):
            built = programs.row_program(
                rng, "layer_norm", width, width, epsilon=1e-5, **fields
            )
            rows = programs.observations(rng, 3, width) + 5
            np.testing.assert_array_equal(built.run(rows, isa), built.expected(rows))


@ISAS
@pytest.mark.parametrize("kind", ["mean", "argmax"])
def test_row_reductions_equal_the_reference(kind: str, isa: str) -> None:
    rng = np.random.default_rng(3)
    for width in WIDTHS:
        built = programs.row_program(rng, kind, width, 1)
        rows = programs.observations(rng, 4, width)
        rows[3] = 1  # The first of equals.
        np.testing.assert_array_equal(built.run(rows, isa), built.expected(rows))


@ISAS
@pytest.mark.parametrize("kind", ["add", "subtract", "multiply", "maximum", "minimum"])
def test_one_number_is_broadcast_on_either_side(kind: str, isa: str) -> None:
    rng = np.random.default_rng(4)
    for width in WIDTHS:
        for first, second in ((0, 1), (1, 0)):
            ops = [
                programs.operation("mean", output=1),
                programs.operation(kind, input=first, other=second, output=2),
            ]
            built = programs.Built(np.array(ops), [], [width, 1, width])
            rows = programs.observations(rng, 2, width)
            np.testing.assert_array_equal(built.run(rows, isa), built.expected(rows))


def test_softmax_has_the_same_bits_everywhere_and_sums_to_one() -> None:
    rng = np.random.default_rng(8)
    for width in WIDTHS:
        built = programs.row_program(rng, "softmax", width, width)
        rows = programs.observations(rng, 3, width) * 20
        rows[2] = 3e38
        results = [built.run(rows, isa) for isa in kernels.ISAS]
        for result in results:
            np.testing.assert_array_equal(result, results[0])
        expected = built.expected(rows)
        np.testing.assert_allclose(results[0], expected, rtol=1e-6, atol=2e-38)
        np.testing.assert_allclose(results[0].sum(axis=1), 1, rtol=1e-5)


@ISAS
@pytest.mark.parametrize("stride, pad", [(1, 0), (2, 1), (3, 5)])
def test_the_largest_pixel_of_each_window_is_taken(
    stride: int, pad: int, isa: str
) -> None:
    rng = np.random.default_rng(9)
    sizes = dict(height=7, width=6, kernel_height=3, kernel_width=2)
    places = dict(stride_height=stride, stride_width=stride, pad_top=pad, pad_left=pad)
    for channels in (1, 3, 8, 11):
        op = programs.operation(
            "max_pool", output=1, channels=channels, out_height=3, out_width=2,
            **sizes, **places,
        )  # fmt: skip
        built = programs.Built(np.array([op]), [], [7 * 6 * channels, 3 * 2 * channels])
        rows = programs.observations(rng, 3, 7 * 6 * channels)
        np.testing.assert_array_equal(built.run(rows, isa), built.expected(rows))


@ISAS
def test_copies_slice_and_concatenate(isa: str) -> None:
    ops = [
        programs.operation("copy", input_offset=3, inputs=9, output=1),
        programs.operation("copy", input_offset=0, inputs=5, output_offset=9, output=1),
        programs.operation("unary", activation="relu", input=1, output=2),
    ]
    built = programs.Built(np.array(ops), [], [12, 14, 14])
    rows = programs.observations(np.random.default_rng(5), 3, 12)
    np.testing.assert_array_equal(built.run(rows, isa), built.expected(rows))


@ISAS
def test_duelling_heads_run(isa: str) -> None:
    ops = [
        programs.operation("copy", inputs=1, output=1),
        programs.operation("copy", input_offset=1, inputs=6, output=2),
        programs.operation("mean", input=2, output=3),
        programs.operation("subtract", input=2, other=3, output=4),
        programs.operation("add", input=4, other=1, output=5),
        programs.operation("argmax", input=5, output=6),
    ]
    built = programs.Built(np.array(ops), [], [7, 1, 6, 1, 6, 6, 1])
    rows = programs.observations(np.random.default_rng(6), 9, 7)
    np.testing.assert_array_equal(built.run(rows, isa), built.expected(rows))
