"""Weight matrices on their way into the kernels' layout, and checksums of payloads."""

from __future__ import annotations

import kernel_programs as programs
import numpy as np
import pytest

from acme_quant import kernels

ISAS = pytest.mark.parametrize("isa", kernels.ISAS)
SHAPES = ((1, 1), (3, 5), (31, 9), (32, 64), (33, 65), (100, 17), (130, 200), (65, 8))


@pytest.fixture(params=kernels.ISAS)
def isa(request: pytest.FixtureRequest) -> str:
    with programs.using(request.param):
        yield request.param


def expected_codes(
    w: np.ndarray, inverse: np.ndarray, zero_point: np.ndarray, low: int, high: int
) -> np.ndarray:
    codes = np.rint(w * inverse) + zero_point
    out = np.zeros((w.shape[1], programs.padded(len(w))), np.int8)
    out[:, : len(w)] = np.clip(codes, low, high).T
    return out


@pytest.mark.usefixtures("isa")
def test_codes_of_every_shape_equal_numpy() -> None:
    rng = np.random.default_rng(0)
    for inputs, outputs in SHAPES:
        w = programs.observations(rng, inputs, outputs)
        inverse = rng.uniform(10, 60, outputs).astype(np.float32)
        zero_point = rng.integers(-100, 100, outputs).astype(np.int32)
        for zero, low, high in ((None, -127, 127), (zero_point, -128, 127)):
            out = np.full((outputs, programs.padded(inputs)), 99, np.int8)
            kernels.quantize_columns(w, inverse, zero, low, high, out)
            expected = expected_codes(
                w, inverse, 0 if zero is None else zero, low, high
            )
            np.testing.assert_array_equal(out, expected)


@pytest.mark.usefixtures("isa")
def test_halves_round_to_even() -> None:
    w = np.arange(-40, 41, dtype=np.float32)[:, None] / 2
    out = np.zeros((1, 96), np.int8)
    kernels.quantize_columns(w, np.ones(1, np.float32), None, -127, 127, out)
    np.testing.assert_array_equal(out[0, :81], np.rint(w[:, 0]))


@pytest.mark.usefixtures("isa")
def test_huge_and_nan_weights_are_clipped() -> None:
    w = np.array([[1e30], [-1e30], [np.inf], [-np.inf], [np.nan]], np.float32)
    out = np.zeros((1, 32), np.int8)
    kernels.quantize_columns(w, np.full(1, 2e8, np.float32), None, -7, 7, out)
    np.testing.assert_array_equal(out[0, :5], [7, -7, 7, -7, -7])


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_every_shape_is_transposed(dtype: type) -> None:
    rng = np.random.default_rng(1)
    for inputs, outputs in SHAPES:
        w = programs.observations(rng, inputs, outputs)
        out = np.full((outputs, programs.padded(inputs)), 99, dtype)
        kernels.transpose_columns(w, out)
        np.testing.assert_array_equal(out[:, :inputs], w.T.astype(dtype))
        np.testing.assert_array_equal(out[:, inputs:], 0)


@pytest.mark.usefixtures("isa")
def test_float16_rounds_every_number_as_numpy_does() -> None:
    rng = np.random.default_rng(2)
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    halves = np.sort(halves[np.isfinite(halves)].astype(np.float32))
    between = (halves[1:] + halves[:-1]) / 2
    close = np.nextafter(between, rng.choice([-1e9, 1e9], len(between)), dtype="f4")
    w = np.concatenate([halves, between, close, [65519, 65520, 1e9, 1e-30, np.inf]])
    w = w.astype(np.float32)[None]
    out = np.zeros((w.shape[1], 32), np.uint16)
    kernels.transpose_columns(w, out)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(out[:, 0], w[0].astype(np.float16).view("u2"))


@pytest.mark.usefixtures("isa")
def test_int4_packs_and_unpacks() -> None:
    rng = np.random.default_rng(3)
    codes = programs.integer_codes(rng, 7, 96, 7, False)
    out = np.zeros((7, 48), np.uint8)
    kernels.pack_int4(codes, out)
    np.testing.assert_array_equal(programs.reference.unpack_int4(out), codes)


@pytest.mark.usefixtures("isa")
def test_column_extremes_equal_numpy() -> None:
    rng = np.random.default_rng(4)
    for inputs, outputs in SHAPES:
        w = programs.observations(rng, inputs, outputs)
        low, high = kernels.column_minmax(w)
        np.testing.assert_array_equal([low, high], [w.min(0), w.max(0)])
        np.testing.assert_array_equal(kernels.column_absmax(w), np.abs(w).max(0))


@pytest.mark.usefixtures("isa")
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_columns_that_are_not_finite_are_refused(bad: float) -> None:
    for inputs, outputs in SHAPES:
        w = np.zeros((inputs, outputs), np.float32)
        w[-1, -1] = bad
        with pytest.raises(ValueError, match="expected finite numbers, got NaN or Inf"):
            kernels.column_absmax(w)


@pytest.mark.usefixtures("isa")
def test_checksum_is_bytewise_everywhere() -> None:
    rng = np.random.default_rng(5)
    data = rng.integers(0, 256, 100_000).astype(np.uint8).tobytes()
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    crc, expected = 0xFFFFFFFF, [0]
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 255]
        expected.append(crc ^ 0xFFFFFFFF)
    for length in (*range(70), 4095, 4096, 4097, 4119, 12345, 99_999, 100_000):
        assert kernels.crc32c(data[:length]) == expected[length]
        assert kernels.crc32c(memoryview(data)[:length]) == expected[length]
    for cut in (0, 1, 4097, 50_001):
        assert kernels.crc32c(data[cut:], kernels.crc32c(data[:cut])) == expected[-1]


W, INVERSE = np.ones((3, 2), np.float32), np.ones(2, np.float32)
CODES = np.zeros((2, 32), np.int8)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((W.T, INVERSE, None, -7, 7, CODES), "w: expected a C-contiguous float32"),
        ((W[0], INVERSE, None, -7, 7, CODES), "w: expected a C-contiguous float32"),
        ((W.astype("f8"), INVERSE, None, -7, 7, CODES), "w: expected"),
        ((W[:0], INVERSE, None, -7, 7, CODES), "w: expected at least one number"),
        (([1.0], INVERSE, None, -7, 7, CODES), "w: expected .* got list"),
        ((W, INVERSE[:1], None, -7, 7, CODES), "inverse_scale: expected 2 .* got 1"),
        (
            (W, INVERSE, INVERSE, -7, 7, CODES),
            "zero_point: expected a .* int32",
        ),
        ((W, INVERSE, None, -7, 7, CODES[:, :8]), "out: expected"),
        ((W, INVERSE, None, -7, 7, bytes(64)), "out: expected writable"),
        (
            (W, INVERSE, None, -129, 7, CODES),
            "codes: expected a range within -128",
        ),
        ((W, INVERSE, None, 7, -7, CODES), "codes: expected a range within -128"),
        (
            (W, INVERSE, np.array([0, 2**30], "i4"), -7, 7, CODES),
            r"zero_point: expected numbers within \+-1048576, got 1073741824",
        ),
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kernels.quantize_columns(*arguments)


def test_wrong_outputs_are_refused() -> None:
    with pytest.raises(ValueError, match="out: expected 32 in dimension 1, got 31"):
        kernels.transpose_columns(W, np.zeros((2, 31), np.float32))
    with pytest.raises(ValueError, match="out: expected .* of format 'd'"):
        kernels.transpose_columns(W, np.zeros((2, 32), np.float64))
    with pytest.raises(ValueError, match="codes: expected rows of a multiple of 32"):
        kernels.pack_int4(np.zeros((2, 33), np.int8), np.zeros((2, 16), np.uint8))
    with pytest.raises(ValueError, match="out: expected 16 in dimension 1"):
        kernels.pack_int4(np.zeros((2, 32), np.int8), np.zeros((2, 17), np.uint8))
    with pytest.raises(ValueError, match="buffer: expected a contiguous buffer"):
        kernels.crc32c(np.zeros((4, 4))[:, 1])
