"""The C face of the engine, for type checkers; module.c and program.c tell the rest."""

from typing import Tuple

import numpy as np

_Buffer = bytes | bytearray | memoryview | np.ndarray

FORMATS: Tuple[str, ...]
ACTIVATIONS: Tuple[str, ...]
KINDS: Tuple[str, ...]
ISAS: Tuple[str, ...]
KERNELS: Tuple[str, ...]
OP_FIELDS: Tuple[str, ...]
ROW: int
LARGEST_CODE: int

class Program:
    """A policy's operations, checked."""

    def __new__(
        cls,
        ops: np.ndarray,
        tensors: np.ndarray,
        value_widths: np.ndarray,
        payload_bytes: int,
    ) -> Program:
        """Takes OP_DTYPE [L], int64 [T, 2] and int32 [V].

        Raises:
          ValueError: they are not a program.
        """
        ...

    def run(
        self, payload: _Buffer, observations: np.ndarray, out: np.ndarray, /
    ) -> None:
        """Runs observations float32 [M, W]; writes out float32 [M, A]."""
        ...

def isa() -> str:
    """Returns the name of the kernels in use."""
    ...

def select_isa(name: str, /) -> None:
    """Chooses the kernels of Programs built from now on."""
    ...

def crc32c(buffer: _Buffer, value: int = 0) -> int:
    """Returns the CRC-32C of a buffer's bytes."""
    ...

def column_range(w: np.ndarray, low: np.ndarray, high: np.ndarray, /) -> None:
    """Writes the extremes of each column of w float32 [K, N]."""
    ...

def quantize_columns(
    w: np.ndarray,
    inverse_scale: np.ndarray,
    zero_point: np.ndarray | None,
    code_min: int,
    code_max: int,
    out: np.ndarray,
) -> None:
    """Writes the codes of w float32 [K, N] to out int8 [N, Kp]."""
    ...

def transpose_columns(w: np.ndarray, out: np.ndarray, /) -> None:
    """Writes w[k, n] to out[n, k], padding 0."""
    ...

def pack_int4(codes: np.ndarray, out: np.ndarray, /) -> None:
    """Packs two codes a byte."""
    ...
