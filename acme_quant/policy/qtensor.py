"""A quantized weight matrix and what always holds of one.

The formula of every integer format stands here, once; one scale per output channel:

    w = (code - zero_point) * scale

Quantizers (quantizers.py) choose scale and codes; kernels read the codes as they lie
here, so a QTensor's arrays can be views of a payload.
"""

from __future__ import annotations

import dataclasses
from typing import Tuple

import numpy as np

from acme_quant import kernels

# How each format of `kernels.FORMATS` stores its codes.
CODE_DTYPES = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "int8": np.dtype(np.int8),
    "int4": np.dtype(np.uint8),
}


def padded(inputs: int) -> int:
    """Returns `inputs` rounded up to a whole number of kernel rows (`kernels.ROW`)."""
    return -(-inputs // kernels.ROW) * kernels.ROW


def codes_shape(storage: str, outputs: int, inputs: int) -> Tuple[int, int]:
    """Returns the shape of the stored codes: int4 packs two codes a byte."""
    width = padded(inputs)
    return (outputs, width // 2) if storage == "int4" else (outputs, width)


@dataclasses.dataclass(frozen=True)
class QTensor:
    """A weight matrix of N outputs and K inputs in one of `kernels.FORMATS`.

    Invariants, enforced by `check`:
      * `codes` is C-contiguous, of `codes_shape(format, N, K)` and `CODE_DTYPES`.
      * Columns K.. of a row hold the value zero (code 0; 8 in an int4 nibble).
      * int8 codes lie in [-127, 127], int4 codes in [-7, 7] stored as code + 8.
      * `scale` is float32 [N], positive and finite, for int8 and int4; None otherwise.
      * `zero_point` is int32 [N] in [-127, 127], for int8 alone; None means all zero.
      * float codes are finite.

    Attributes:
      format: one of `kernels.FORMATS`.
      codes: the stored codes, in the kernels' layout.
      shape: (N, K).
      scale: float32 [N] or None.
      zero_point: int32 [N] or None.
    """

    format: str
    codes: np.ndarray
    shape: Tuple[int, int]
    scale: np.ndarray | None = None
    zero_point: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the codes, scales and zero points."""
        arrays = (self.codes, self.scale, self.zero_point)
        return sum(array.nbytes for array in arrays if array is not None)

    def integer_codes(self) -> np.ndarray:
        """Returns the unpacked codes, int8 [N, Kp], of an integer format."""
        if self.format == "int8":
            return self.codes
        blocks = self.codes.reshape(self.shape[0], -1, kernels.ROW // 2)
        both = np.concatenate([blocks & 15, blocks >> 4], axis=2)
        return both.reshape(self.shape[0], -1).astype(np.int8) - np.int8(8)

    def dequantize(self) -> np.ndarray:
        """Returns the weights this tensor stands for, float32 [N, K]."""
        inputs = self.shape[1]
        if self.scale is None:
            return self.codes[:, :inputs].astype(np.float32)
        steps = self.integer_codes()[:, :inputs].astype(np.float32)
        if self.zero_point is not None:
            steps -= self.zero_point[:, None].astype(np.float32)
        return steps * self.scale[:, None]

    def check(self) -> None:
        """Raises ValueError, in one sentence, when an invariant does not hold."""
        if self.format not in CODE_DTYPES:
            raise ValueError(
                f"expected a format out of {tuple(CODE_DTYPES)}, got {self.format!r}."
            )
        self._check_codes()
        self._check_parameters()

    def _check_codes(self) -> None:
        expected = codes_shape(self.format, *self.shape)
        dtype = CODE_DTYPES[self.format]
        if self.codes.shape != expected or self.codes.dtype != dtype:
            raise ValueError(
                f"expected {self.format} codes {dtype} {expected}, got "
                f"{self.codes.dtype} {self.codes.shape}."
            )
        if not self.codes.flags.c_contiguous:
            raise ValueError(f"expected C-contiguous {self.format} codes.")
        if self.format.startswith("float"):
            if not np.isfinite(self.codes).all():
                raise ValueError(f"expected finite {self.format} codes.")
            codes, limit = self.codes, np.inf
        else:
            codes = self.integer_codes()
            limit = 127 if self.format == "int8" else 7
        if codes.size and (codes.min() < -limit or codes.max() > limit):
            raise ValueError(
                f"expected {self.format} codes in [-{limit}, {limit}], got "
                f"[{codes.min()}, {codes.max()}]."
            )
        if codes[:, self.shape[1] :].any():
            raise ValueError(f"expected zeros in the padding of {self.format} codes.")

    def _check_parameters(self) -> None:
        outputs = self.shape[0]
        if (self.scale is not None) != self.format.startswith("int"):
            raise ValueError(
                f"expected scales with integer formats, not {self.format}."
            )
        if self.scale is not None:
            scale = self.scale
            if scale.dtype != np.float32 or scale.shape != (outputs,):
                raise ValueError(
                    f"expected scale float32 [{outputs}], got {scale.dtype} "
                    f"{list(scale.shape)}."
                )
            if not (np.isfinite(scale).all() and (scale > 0).all()):
                raise ValueError("expected finite scales above zero.")
        if self.zero_point is None:
            return
        zero_point = self.zero_point
        if self.format != "int8":
            raise ValueError(f"expected no zero point with {self.format}.")
        if zero_point.dtype != np.int32 or zero_point.shape != (outputs,):
            raise ValueError(
                f"expected zero_point int32 [{outputs}], got {zero_point.dtype} "
                f"{list(zero_point.shape)}."
            )
        if np.abs(zero_point.astype(np.int64)).max(initial=0) > 127:
            raise ValueError("expected zero points in [-127, 127].")
