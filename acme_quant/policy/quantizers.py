"""The number formats a policy's weights can take: one class each, one dict at the foot.

Every quantizer goes through the same four steps on a weight matrix float32 [K, N], one
column per output channel:

  calibrate   weight -> Range: the values a channel's codes have to cover
  scale       Range -> (scale, zero_point): one step size per channel; not of floats
  quantize    weight -> QTensor: round half to even, clip, store in the kernels' layout
  dequantize  QTensor -> float32 [N, K] (`QTensor.dequantize`)

and states a bound on `|weight - dequantized|`. Zero is exact in all of them. A
person's own quantizer is an object with `name`, `quantize` and `error_bound` that keeps
QTensor's invariants; nothing has to be registered. Rounding and transposing run in C.
"""

from __future__ import annotations

from typing import Dict, NamedTuple, Tuple

import numpy as np

from acme_quant import kernels
from acme_quant.policy.qtensor import CODE_DTYPES, QTensor, codes_shape, padded
from acme_quant.roles import Quantizer

# Four float32 roundings (scale, its inverse, two products) of a quotient of at most 254
# steps displace a code by at most 4 * 254 * 2**-24 < 2**-14 steps.
ROUNDING_STEPS = 2.0**-14

# A channel whose scale would fall below the normal numbers stands for zeros.
SMALLEST_SCALE = float(np.finfo(np.float32).tiny)

FLOAT16_MAX = float(np.finfo(np.float16).max)


class NonFiniteWeights(ValueError):
    """A weight is NaN or infinite, or would be in the chosen format."""


class Range(NamedTuple):
    """The values the codes of each output channel cover: float32 [N] each."""

    low: np.ndarray
    high: np.ndarray


def column_absmax(weight: np.ndarray) -> np.ndarray:
    """Returns the largest magnitude of each output channel, float32 [N].

    Raises:
      NonFiniteWeights: a weight is NaN or infinite.
    """
    try:
        return kernels.column_absmax(weight)
    except ValueError as error:
        if np.isfinite(weight).all():
            raise
        raise NonFiniteWeights(_where_not_finite(weight)) from error


def _where_not_finite(weight: np.ndarray) -> str:
    row, column = np.argwhere(~np.isfinite(weight))[0]
    return (
        f"expected finite weights, got {weight[row, column]} at input {row}, "
        f"output {column} of a matrix {list(weight.shape)}."
    )


def _matrix(weight: np.ndarray) -> np.ndarray:
    """Returns `weight` C-contiguous; refuses what is not a float32 matrix."""
    if not isinstance(weight, np.ndarray) or weight.dtype != np.float32:
        got = getattr(weight, "dtype", type(weight).__name__)
        raise ValueError(f"expected a float32 weight matrix, got {got}.")
    if weight.ndim != 2 or 0 in weight.shape:
        raise ValueError(
            f"expected a weight matrix [inputs, outputs], got {list(weight.shape)}."
        )
    return np.ascontiguousarray(weight)


def _shape(weight: np.ndarray) -> Tuple[int, int]:
    """Returns (outputs, inputs) of a weight [K, N]."""
    inputs, outputs = weight.shape
    return outputs, inputs


def _codes(storage: str, weight: np.ndarray, out: np.ndarray | None) -> np.ndarray:
    """Returns `out`, checked, or new zeroed codes for `weight` [K, N]."""
    shape = codes_shape(storage, *_shape(weight))
    if out is None:
        return np.zeros(shape, CODE_DTYPES[storage])
    if out.shape != shape or out.dtype != CODE_DTYPES[storage]:
        raise ValueError(
            f"expected room for {storage} codes {shape}, got {out.dtype} {out.shape}."
        )
    return out


class Float32:
    """Weights as they are. Error bound: 0."""

    name = "float32"
    format = "float32"

    def calibrate(self, weight: np.ndarray) -> Range:
        """Returns the range of magnitudes; finds NaN and Inf on the way."""
        largest = column_absmax(weight)
        return Range(-largest, largest)

    def quantize(self, weight: np.ndarray, out: np.ndarray | None = None) -> QTensor:
        """Transposes float32 [K, N] into float32 rows [N, Kp].

        Args:
          weight: float32 [K, N].
          out: where the codes go, or None for a new array.

        Raises:
          NonFiniteWeights: a weight is NaN or infinite.
        """
        weight = _matrix(weight)
        self.calibrate(weight)
        codes = _codes(self.format, weight, out)
        kernels.transpose_columns(weight, codes)
        return QTensor(self.format, codes, _shape(weight))

    def error_bound(self, qtensor: QTensor, weight: np.ndarray) -> np.ndarray:
        """Returns zeros, float32 [N, K]."""
        del weight
        return np.zeros(qtensor.shape, np.float32)


class Float16(Float32):
    """IEEE half precision. Error bound: |w| 2^-11, or 2^-25 for the smallest."""

    name = "float16"
    format = "float16"

    def quantize(self, weight: np.ndarray, out: np.ndarray | None = None) -> QTensor:
        """Rounds float32 [K, N] to half rows [N, Kp].

        Raises:
          NonFiniteWeights: a weight is NaN or infinite, here or as a half.
        """
        weight = _matrix(weight)
        largest = float(self.calibrate(weight).high.max())
        if largest > FLOAT16_MAX:
            raise NonFiniteWeights(
                f"expected weights within float16's {FLOAT16_MAX:g}, got {largest:g}."
            )
        codes = _codes(self.format, weight, out)
        kernels.transpose_columns(weight, codes.view(np.uint16))
        return QTensor(self.format, codes, _shape(weight))

    def error_bound(self, qtensor: QTensor, weight: np.ndarray) -> np.ndarray:
        """Returns half a unit in the last place of a half, float32 [N, K]."""
        del qtensor
        return np.maximum(np.abs(weight.T) * np.float32(2**-11), np.float32(2**-25))


class Int8:
    """Symmetric, one scale per output channel, codes in [-127, 127]; never -128.

    scale = max|w| / 127, code = round(w / scale). An all-zero channel has scale 1.
    Error bound: half a scale.
    """

    name = "int8"
    format = "int8"
    code_max = 127

    def calibrate(self, weight: np.ndarray) -> Range:
        """Returns the symmetric range of each channel.

        Raises:
          NonFiniteWeights: a weight is NaN or infinite.
        """
        largest = column_absmax(weight)
        return Range(-largest, largest)

    def scale(self, limits: Range) -> Tuple[np.ndarray, np.ndarray | None]:
        """Returns (float32 [N] scale, no zero point)."""
        return _usable(limits.high / np.float32(self.code_max)), None

    def quantize(self, weight: np.ndarray, out: np.ndarray | None = None) -> QTensor:
        """Quantizes float32 [K, N] into rows of codes [N, Kp].

        Args:
          weight: float32 [K, N].
          out: where the codes go, or None for a new array.

        Raises:
          NonFiniteWeights: a weight is NaN or infinite.
        """
        weight = _matrix(weight)
        scale, zero_point = self.scale(self.calibrate(weight))
        codes = _codes(self.format, weight, out)
        self._round(weight, scale, zero_point, codes)
        return QTensor(self.format, codes, _shape(weight), scale, zero_point)

    def _round(
        self,
        weight: np.ndarray,
        scale: np.ndarray,
        zero_point: np.ndarray | None,
        codes: np.ndarray,
    ) -> None:
        """Writes the codes of a weight [K, N] as int8 [N, Kp]."""
        inverse = np.float32(1) / scale
        kernels.quantize_columns(
            weight, inverse, zero_point, -self.code_max, self.code_max, codes
        )

    def error_bound(self, qtensor: QTensor, weight: np.ndarray) -> np.ndarray:
        """Returns half a step, or the distance to the clip range: float32 [N, K]."""
        assert qtensor.scale is not None  # An integer format always has one.
        step = qtensor.scale[:, None].astype(np.float64)
        half = (0.5 + ROUNDING_STEPS) * step
        zero = 0 if qtensor.zero_point is None else qtensor.zero_point[:, None]
        ceiling = (self.code_max - zero) * step
        floor = (-self.code_max - zero) * step
        clipped = np.maximum(weight.T - ceiling, floor - weight.T)
        return np.maximum(half, clipped + ROUNDING_STEPS * step)


def _usable(scale: np.ndarray) -> np.ndarray:
    """Returns float32 scales with 1 in the place of zeros and denormals."""
    scale = scale.astype(np.float32)
    return np.where(scale < SMALLEST_SCALE, np.float32(1), scale)


class Int8Tensor(Int8):
    """ActorQ's uniform affine quantizer (arXiv 1910.01055): one scale per tensor.

    The range is stretched to contain zero; scale = (max - min) / 254 and the zero point
    is the code of zero, so that zero is exact. Error bound: half a scale.
    """

    name = "int8_tensor"

    def calibrate(self, weight: np.ndarray) -> Range:
        """Returns one range for all channels, containing zero.

        Raises:
          NonFiniteWeights: a weight is NaN or infinite.
        """
        column_absmax(weight)
        low, high = kernels.column_minmax(weight)
        outputs = weight.shape[1]
        return Range(
            np.full(outputs, min(float(low.min()), 0.0), np.float32),
            np.full(outputs, max(float(high.max()), 0.0), np.float32),
        )

    def scale(self, limits: Range) -> Tuple[np.ndarray, np.ndarray | None]:
        """Returns (float32 [N] scale, int32 [N] zero point), all channels alike."""
        low = limits.low.astype(np.float64)  # high - low may pass float32's largest.
        scale = _usable((limits.high - low) / (2 * self.code_max))
        zero_point = np.rint(-self.code_max - low / scale)
        return scale, np.clip(zero_point, -self.code_max, self.code_max).astype(
            np.int32
        )


class Int8Clipped(Int8):
    """Int8 whose clip range minimises the squared error of each channel.

    The range is searched among `RATIOS` of the channel's largest magnitude, the whole
    range among them, so a channel is never worse than int8's. It reads the weights once
    per ratio, which makes it many times slower than int8. Error bound: half a scale
    inside the clip range, the distance to it outside.
    """

    name = "int8_clipped"
    # Closest near 1, where the best one is unless a few weights stand far out.
    RATIOS = tuple((1 - 0.6 * np.square(np.arange(16) / 15)).tolist())

    def calibrate(self, weight: np.ndarray) -> Range:
        """Returns the symmetric range of least squared error of each channel.

        Raises:
          NonFiniteWeights: a weight is NaN or infinite.
        """
        largest = column_absmax(weight)
        best = largest.copy()
        least = self._squared_error(weight, largest)
        for ratio in self.RATIOS[1:]:
            clip = largest * np.float32(ratio)
            error = self._squared_error(weight, clip)
            usable = clip >= np.float32(SMALLEST_SCALE * self.code_max)
            better = usable & (error < least)
            best[better] = clip[better]
            least[better] = error[better]
        return Range(-best, best)

    def _squared_error(self, weight: np.ndarray, clip: np.ndarray) -> np.ndarray:
        """Returns the squared error of each channel clipped at `clip`, float64 [N].

        In units of the channel's largest step, so that huge weights do not overflow.
        """
        scale, _ = self.scale(Range(-clip, clip))
        inverse = np.float32(1) / scale
        total = np.zeros(weight.shape[1], np.float64)
        for rows in range(0, weight.shape[0], 256):  # A block stays in the cache.
            steps = weight[rows : rows + 256] * inverse
            codes = np.clip(np.rint(steps), -self.code_max, self.code_max)
            steps -= codes
            total += np.einsum("kn,kn->n", steps, steps)
        return total * np.square(scale.astype(np.float64))


class Int6(Int8):
    """Int8 with codes in [-31, 31], stored as int8. Error bound: half a scale."""

    name = "int6"
    code_max = 31


class Int5(Int8):
    """Int8 with codes in [-15, 15], stored as int8. Error bound: half a scale."""

    name = "int5"
    code_max = 15


class Int4(Int8):
    """Int8 with codes in [-7, 7], packed two a byte. Error bound: half a scale."""

    name = "int4"
    format = "int4"
    code_max = 7

    def _round(
        self,
        weight: np.ndarray,
        scale: np.ndarray,
        zero_point: np.ndarray | None,
        codes: np.ndarray,
    ) -> None:
        """Writes the codes of a weight [K, N] as uint8 [N, Kp / 2]."""
        wide = np.zeros((len(codes), padded(weight.shape[0])), np.int8)
        super()._round(weight, scale, zero_point, wide)
        kernels.pack_int4(wide, codes)


def get(quantizer: str | Quantizer) -> Quantizer:
    """Returns the quantizer of that name, or the object itself.

    Raises:
      ValueError: the name is unknown or the object lacks what a quantizer needs.
    """
    if isinstance(quantizer, str):
        if quantizer not in QUANTIZERS:
            raise ValueError(
                f"expected a quantizer out of {', '.join(QUANTIZERS)}, "
                f"got {quantizer!r}."
            )
        return QUANTIZERS[quantizer]()
    missing = [
        part
        for part in ("name", "quantize", "error_bound")
        if not hasattr(quantizer, part)
    ]
    if isinstance(quantizer, type) or missing:
        raise ValueError(
            "expected a quantizer's name or an object with name, quantize and "
            f"error_bound, got {quantizer!r}."
        )
    return quantizer


def check_precisions(
    quantizer: str | Quantizer, communication: str | Quantizer | None
) -> None:
    """Refuses a communication precision that would change nothing.

    Args:
      quantizer: the number format the actors run.
      communication: the number format on the wire, when the actors are to quantize
        what they receive; None or empty to send the actors' own format.

    Raises:
      ValueError: either is unknown, or both are the same.
    """
    running = get(quantizer).name
    if communication and get(communication).name == running:
        raise ValueError(
            f"expected a communication format other than {running}, which the actors "
            "run and are sent anyway."
        )


QUANTIZERS: Dict[str, type] = {
    quantizer.name: quantizer
    for quantizer in (
        Float32, Float16, Int8, Int8Tensor, Int8Clipped, Int6, Int5, Int4,
    )
}  # fmt: skip
