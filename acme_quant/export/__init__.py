"""A policy for other programs: C99, ONNX, NumPy arrays; a function a format."""

from __future__ import annotations

from collections.abc import Callable

from acme_quant.export import c, npz, onnx
from acme_quant.export.source import Exported, ExportError, Observations, Source

__all__ = ["FORMATS", "ExportError", "Exported", "Observations", "Source"]

FORMATS: dict[str, Callable[[Source, str, Observations], Exported]] = {
    "c": c.write,
    "onnx": onnx.write,
    "npz": npz.write,
}
