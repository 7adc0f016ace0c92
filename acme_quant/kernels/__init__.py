"""The engine: a policy as a short list of operations, run by one C call.

    observations float32 [M, W0] --> value 0 --op--> value 1 --op--> ... --> out

Letters: M rows of a batch, K inputs, N outputs. Every value is a float32 row of a
fixed width. An operation reads one or two values and writes one; tensors (weights,
scales, biases) lie in the payload, a single block of bytes which is read in place.

The formula of a quantized product stands in `reference.py`; `portable.c` and
`avx2.c` give the same integers. What this package does not do: it does not quantize
a policy (`acme_quant.quantizers`), and it knows no TensorFlow.
"""

from __future__ import annotations

import numpy as np

FORMATS = ("float32", "float16", "int8", "int4")
ACTIVATIONS = ("identity", "tanh", "relu", "elu", "selu", "sigmoid", "softplus")
KINDS = (
    "linear",
    "conv2d",
    "layer_norm",
    "unary",
    "affine",
    "clip",
    "add",
    "subtract",
    "multiply",
    "mean",
    "argmax",
    "copy",
)

# Every weight row is padded with zeros (code 0) to a multiple of this.
ROW = 32

OP_FIELDS = (
    *("kind", "activation"),
    # Value ids; value 0 is the observation row, -1 is none.
    *("input", "other", "output"),
    # Tensor ids, -1 is none.
    *("weight", "scale", "zero_point", "bias"),
    *("format", "inputs", "outputs", "activation_max"),
    *("input_offset", "output_offset"),
    *("height", "width", "channels", "kernel_height", "kernel_width"),
    *("stride_height", "stride_width", "pad_top", "pad_left"),
    *("out_height", "out_width"),
    "epsilon",
)
OP_DTYPE = np.dtype(
    [(name, "<f4" if name == "epsilon" else "<i4") for name in OP_FIELDS]
)
