"""A policy as one block of bytes: layers, codes, scales; NumPy alone runs it."""

from acme_quant.policy.quantized_policy import QuantizedPolicy, quantize_graph

__all__ = ["QuantizedPolicy", "quantize_graph"]
