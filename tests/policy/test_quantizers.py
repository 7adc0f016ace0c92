"""Every quantizer keeps one contract; the list in quantizers.py is the list here."""

from __future__ import annotations

import numpy as np
import pytest

from acme_quant.policy import quantizers
from acme_quant.policy.qtensor import QTensor, codes_shape
from acme_quant.policy.quantizers import Quantizer

NAMES = tuple(quantizers.QUANTIZERS)
INTEGERS = tuple(name for name in NAMES if name.startswith("int"))
RNG = np.random.default_rng(7)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


ARRAYS = {
    "normal": normal(45, 7),
    "one row": normal(1, 33),
    "one column": normal(70, 1),
    "wide": normal(3, 300),
    "zeros": np.zeros((4, 3), np.float32),
    "a zero channel": normal(40, 3) * np.array([1, 0, 1], np.float32),
    "constant": np.full((5, 3), 0.7, np.float32),
    "positive": np.abs(normal(33, 4)) + np.float32(1),
    "negative": -np.abs(normal(33, 4)),
    "half steps": np.arange(-127, 128, dtype=np.float32)[:, None] / np.float32(2),
    "denormal": np.full((2, 3), 1e-40, np.float32),
    "smallest scale": np.array([[1.4e-36, 1.6e-36], [0, -1e-37]], np.float32),
    "one outlier": np.concatenate([normal(200, 2), np.full((1, 2), 40, np.float32)]),
}
HUGE = np.array([[3e38, -3e38, 1.0], [-3e38, 1e38, 0.0]], np.float32)


@pytest.fixture(params=NAMES)
def quantizer(request: pytest.FixtureRequest) -> Quantizer:
    return quantizers.get(request.param)


@pytest.mark.parametrize("array", ARRAYS, ids=str)
def test_a_round_trip_stays_within_the_stated_bound(
    quantizer: Quantizer, array: str
) -> None:
    weight = ARRAYS[array]
    tensor = quantizer.quantize(weight)
    tensor.check()
    assert tensor.shape == weight.shape[::-1]
    error = np.abs(tensor.dequantize().astype(np.float64) - weight.T)
    bound = quantizer.error_bound(tensor, weight)
    assert bound.shape == tensor.shape
    assert (error <= bound).all(), (error - bound).max()


@pytest.mark.parametrize("name", [n for n in INTEGERS if n != "int8_clipped"])
@pytest.mark.parametrize("array", ARRAYS, ids=str)
def test_the_bound_is_half_a_step(name: str, array: str) -> None:
    quantizer, weight = quantizers.get(name), ARRAYS[array]
    tensor = quantizer.quantize(weight)
    # Of the largest step: float32 rounding adds 2**-14 of it at most, see the module;
    # a channel too small for a normal scale has step 1.
    half = 0.5 * tensor.scale[:, None] * (1 + 2 * quantizers.ROUNDING_STEPS)
    assert (quantizer.error_bound(tensor, weight) <= half * (1 + 1e-6)).all()


@pytest.mark.parametrize("name", [n for n in NAMES if n != "float16"])
def test_huge_weights_stay_finite_and_within_the_bound(name: str) -> None:
    quantizer = quantizers.get(name)
    tensor = quantizer.quantize(HUGE)
    tensor.check()
    error = np.abs(tensor.dequantize().astype(np.float64) - HUGE.T)
    assert (error <= quantizer.error_bound(tensor, HUGE)).all()


def test_float16_refuses_what_would_become_infinite() -> None:
    with pytest.raises(quantizers.NonFiniteWeights, match="65504"):
        quantizers.get("float16").quantize(HUGE)


@pytest.mark.parametrize("array", ARRAYS, ids=str)
def test_zero_stays_zero(quantizer: Quantizer, array: str) -> None:
    weight = ARRAYS[array].copy()
    weight[0, 0] = 0
    assert (quantizer.quantize(weight).dequantize()[weight.T == 0] == 0).all()


@pytest.mark.parametrize("name", INTEGERS)
def test_zero_row_has_scale_one(name: str) -> None:
    weight = np.zeros((40, 3), np.float32)
    np.testing.assert_array_equal(quantizers.get(name).quantize(weight).scale, 1)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_weights_are_refused_and_located(
    quantizer: Quantizer, bad: float
) -> None:
    weight = normal(40, 5)
    weight[33, 4] = bad
    with pytest.raises(quantizers.NonFiniteWeights, match="input 33, output 4"):
        quantizer.quantize(weight)


def test_what_is_not_a_float32_matrix_is_refused(quantizer: Quantizer) -> None:
    for wrong in (normal(4, 4).astype(np.float64), normal(4), [[1.0]], normal(0, 4)):
        with pytest.raises(ValueError, match="expected"):
            quantizer.quantize(wrong)


def test_codes_go_where_they_are_told(quantizer: Quantizer) -> None:
    weight = normal(45, 7)
    expected = quantizer.quantize(weight)
    room = np.full_like(expected.codes, 3)
    tensor = quantizer.quantize(weight, out=room)
    assert tensor.codes is room
    np.testing.assert_array_equal(room, expected.codes)
    with pytest.raises(ValueError, match="expected room"):
        quantizer.quantize(weight, out=room[:, :16])


def test_a_transposed_view_gives_the_same_codes(quantizer: Quantizer) -> None:
    weight = normal(45, 7)
    view = np.asfortranarray(weight)
    np.testing.assert_array_equal(
        quantizer.quantize(view).codes, quantizer.quantize(weight).codes
    )


def test_rounding_is_half_to_even() -> None:
    weight = np.array([[127.0], [0.5], [1.5], [-2.5]], np.float32)
    codes = quantizers.get("int8").quantize(weight).codes[0, :4]
    np.testing.assert_array_equal(codes, [127, 0, 2, -2])


@pytest.mark.parametrize("name, largest", [("int8", 127), ("int6", 31), ("int5", 15)])
def test_fewer_bits_are_fewer_codes(name: str, largest: int) -> None:
    codes = quantizers.get(name).quantize(normal(500, 2)).codes
    assert np.abs(codes.astype(int)).max() == largest


def test_int4_takes_half_a_byte_a_weight() -> None:
    tensor = quantizers.get("int4").quantize(normal(64, 8))
    assert tensor.codes.nbytes == 64 * 8 // 2 and tensor.format == "int4"


def test_int8_tensor_has_one_scale_and_a_zero_point() -> None:
    weight = np.abs(normal(40, 6)) + np.float32(0.5)
    tensor = quantizers.get("int8_tensor").quantize(weight)
    assert len(set(tensor.scale.tolist())) == 1
    assert set(tensor.zero_point.tolist()) == {-127}
    step = weight.max() / np.float32(254)
    np.testing.assert_allclose(tensor.scale, step, rtol=2**-22)


def test_int8_clipped_is_never_worse_than_int8() -> None:
    for weight in ARRAYS.values():
        errors = []
        for name in ("int8_clipped", "int8"):
            tensor = quantizers.get(name).quantize(weight)
            difference = tensor.dequantize().astype(np.float64) - weight.T
            errors.append(np.square(difference).sum(axis=1))
        # Both sums are of float32 products: equal channels differ by rounding alone.
        assert (errors[0] <= errors[1] * (1 + 1e-5)).all()


def test_int8_clipped_finds_the_least_squared_error_of_its_ratios() -> None:
    rng = np.random.default_rng(1)
    weight = rng.standard_t(4, (3000, 4)).astype(np.float32)
    clipped = quantizers.get("int8_clipped")
    largest = np.abs(weight).max(axis=0)
    errors = []
    for ratio in clipped.RATIOS:
        scale = (largest * np.float32(ratio)) / np.float32(127)
        codes = np.clip(np.rint(weight / scale), -127, 127)
        errors.append(np.square(codes * scale - weight.astype(np.float64)).sum(axis=0))
    tensor = clipped.quantize(weight)
    difference = tensor.dequantize().T - weight.astype(np.float64)
    np.testing.assert_allclose(
        np.square(difference).sum(axis=0), np.min(errors, axis=0), rtol=1e-4
    )
    assert (tensor.scale < largest / np.float32(127)).any()


class EveryWeightOne:
    """A quantizer of somebody else: no base class, no registration."""

    name = "ones"

    def quantize(self, weight: np.ndarray) -> QTensor:
        codes = np.zeros(codes_shape("int8", weight.shape[1], weight.shape[0]), np.int8)
        codes[:, : weight.shape[0]] = 1
        scale = np.ones(weight.shape[1], np.float32)
        return QTensor("int8", codes, weight.shape[::-1], scale)

    def error_bound(self, qtensor: QTensor, weight: np.ndarray) -> np.ndarray:
        return np.abs(weight.T - 1)


def test_an_object_of_ones_own_is_taken_as_it_is() -> None:
    mine = EveryWeightOne()
    assert quantizers.get(mine) is mine
    mine.quantize(normal(3, 4)).check()


def test_unknown_quantizers_are_refused_with_the_list_of_names() -> None:
    with pytest.raises(ValueError, match="float16.*'int7'"):
        quantizers.get("int7")
    for wrong in (3, object(), EveryWeightOne, None):
        with pytest.raises(ValueError, match="expected a quantizer"):
            quantizers.get(wrong)


def test_a_communication_format_that_changes_nothing_is_refused() -> None:
    quantizers.check_precisions("int8", None)
    quantizers.check_precisions("int8", "float16")
    quantizers.check_precisions("float32", "int8")
    with pytest.raises(ValueError, match="other than int8"):
        quantizers.check_precisions("int8", "int8")
    with pytest.raises(ValueError, match="int7"):
        quantizers.check_precisions("int8", "int7")
