from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from acme_quant.policy import qtensor
from acme_quant.policy.qtensor import QTensor


def int8_tensor(outputs: int = 3, inputs: int = 5) -> QTensor:
    codes = np.zeros((outputs, 32), np.int8)
    codes[:, :inputs] = np.arange(outputs * inputs).reshape(outputs, inputs) - 7
    return QTensor("int8", codes, (outputs, inputs), np.full(outputs, 0.5, np.float32))


def test_rows_are_padded_to_whole_kernel_rows() -> None:
    assert [qtensor.padded(k) for k in (1, 31, 32, 33)] == [32, 32, 32, 64]
    assert qtensor.codes_shape("int4", 7, 33) == (7, 32)


def test_dequantizing_follows_the_formula() -> None:
    tensor = int8_tensor()
    expected = tensor.codes[:, :5].astype(np.float32) * np.float32(0.5)
    np.testing.assert_array_equal(tensor.dequantize(), expected)


def test_a_zero_point_is_the_code_of_zero() -> None:
    zero_point = np.array([-7, 3, 0], np.int32)
    tensor = dataclasses.replace(int8_tensor(), zero_point=zero_point)
    tensor.check()
    assert tensor.dequantize()[0, 0] == 0
    assert tensor.dequantize()[1, 0] == (-2 - 3) * 0.5


def test_int4_unpacks_low_nibbles_before_high_ones() -> None:
    packed = np.full((1, 16), 8 | 8 << 4, np.uint8)
    packed[0, 2] = 15 | 1 << 4  # Code 2 is 7 and code 18 is -7.
    tensor = QTensor("int4", packed, (1, 20), np.ones(1, np.float32))
    tensor.check()
    weights = tensor.dequantize()[0]
    assert weights[2] == 7 and weights[18] == -7
    assert np.count_nonzero(weights) == 2


def test_bytes_count_codes_scales_and_zero_points() -> None:
    tensor = dataclasses.replace(int8_tensor(), zero_point=np.zeros(3, np.int32))
    assert tensor.nbytes == 3 * 32 + 3 * 4 + 3 * 4


def with_codes(value: int, column: int) -> dict:
    codes = int8_tensor().codes.copy()
    codes[0, column] = value
    return {"codes": codes}


@pytest.mark.parametrize(
    "change",
    [
        {"format": "int3"},
        {"format": "float32"},
        {"shape": (3, 40)},
        {"scale": None},
        {"scale": np.zeros(3, np.float32)},
        {"scale": np.full(3, np.nan, np.float32)},
        {"scale": np.ones(3)},
        {"scale": np.ones(4, np.float32)},
        {"zero_point": np.zeros(3)},
        {"zero_point": np.full(3, 128, np.int32)},
        {"codes": int8_tensor().codes[:, ::-1]},
        with_codes(-128, 0),
        with_codes(1, 5),
    ],
    ids=str,
)
def test_a_broken_invariant_is_refused(change: dict) -> None:
    with pytest.raises(ValueError, match="expected"):
        dataclasses.replace(int8_tensor(), **change).check()


def test_non_finite_float_codes_are_refused() -> None:
    codes = np.zeros((1, 32), np.float16)
    codes[0, 0] = np.inf
    with pytest.raises(ValueError, match="finite"):
        QTensor("float16", codes, (1, 3)).check()
