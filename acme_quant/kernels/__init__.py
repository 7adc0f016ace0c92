"""The engine: a policy as a short list of operations, run by one C call.

    observations float32 [M, W0] --> value 0 --op--> value 1 --op--> ... --> out

Letters: M rows of a batch, K inputs, N outputs. Every value is a float32 row of a
fixed width. An operation reads one or two values and writes one; tensors (weights,
scales, biases) lie in the payload, a single block of bytes which is read in place.

The formula of a quantized product stands in `reference.py`; `portable.c` and
`avx2.c` give the same integers. `README.md` names the files in reading order. What this
package does not do: it does not quantize a policy (`acme_quant.policy.quantizers`), and
it knows no TensorFlow.
"""

from __future__ import annotations

from typing import Tuple

import numpy as np

try:
    from acme_quant.kernels import _kernels
except ImportError as error:
    raise ImportError(
        f"expected the compiled kernels beside {__file__}, got sources alone: work in "
        "another folder if acme_quant is installed, or compile the kernels here with "
        "'pip install -e .'."
    ) from error
from acme_quant.kernels._kernels import (
    ISAS,
    KERNELS,
    Program,
    crc32c,
    isa,
    pack_int4,
    quantize_columns,
    select_isa,
    transpose_columns,
)

__all__ = [
    "ACTIVATIONS",
    "FORMATS",
    "ISAS",
    "KERNELS",
    "KINDS",
    "LARGEST_CODE",
    "OP_DTYPE",
    "OP_FIELDS",
    "ROW",
    "Program",
    "column_absmax",
    "column_minmax",
    "crc32c",
    "isa",
    "pack_int4",
    "quantize_columns",
    "select_isa",
    "transpose_columns",
]

# The lists stand in kernels.h and engine.h; an index into them is what an operation
# record holds. Weights are stored in one of
#   float32, float16, int8, int4
FORMATS: Tuple[str, ...] = _kernels.FORMATS
# identity, tanh, relu, elu, selu, sigmoid, softplus, erf; any kind may have one.
ACTIVATIONS: Tuple[str, ...] = _kernels.ACTIVATIONS
# linear, conv2d, layer_norm, unary, affine, clip, add, subtract, multiply, mean,
# argmax, copy, maximum, minimum, softmax, max_pool
KINDS: Tuple[str, ...] = _kernels.KINDS

# Every weight row is padded with zeros (code 0) to a multiple of this.
ROW: int = _kernels.ROW

# The largest code of an input: it and a weight's add up to an int16.
LARGEST_CODE: int = _kernels.LARGEST_CODE

# The fields of an operation record, `op_record` in engine.h.
OP_FIELDS: Tuple[str, ...] = _kernels.OP_FIELDS
OP_DTYPE = np.dtype([(name, "f4" if name == "epsilon" else "i4") for name in OP_FIELDS])


def column_minmax(w: np.ndarray) -> Tuple[np.ndarray, np.ndarray]:
    """Returns the least and the greatest number of each column.

    Args:
      w: float32 [K, N], C-contiguous.

    Returns:
      float32 [N] twice.

    Raises:
      ValueError: a number is NaN or Inf, or w is not such a matrix.
    """
    low, high = np.empty((2, *(np.shape(w)[-1:] or (0,))), np.float32)
    _kernels.column_range(w, low, high)
    return low, high


def column_absmax(w: np.ndarray) -> np.ndarray:
    """Returns the greatest magnitude of each column, float32 [N].

    Args:
      w: float32 [K, N], C-contiguous.

    Raises:
      ValueError: a number is NaN or Inf, or w is not such a matrix.
    """
    low, high = column_minmax(w)
    return np.maximum(-low, high)
