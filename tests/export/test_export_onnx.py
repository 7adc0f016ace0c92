"""Exported ONNX and NumPy arrays stand for the engine's policy."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from exported_policies import dueling, every_kind, policy_of
from kernel_programs import observations
from small_policies import NESTED, flat, network, policy

from acme_quant import kernels
from acme_quant.export import c, npz, onnx
from acme_quant.export.onnx_model import OPSET
from acme_quant.export.source import ExportError, Source
from acme_quant.policy import quantizers
from acme_quant.policy.quantized_policy import QuantizedPolicy, quantize_graph

load = pytest.importorskip("onnx").load_from_string
pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(0)
PROGRAMS = {**every_kind(RNG), "dueling": dueling(RNG)}


SERVED = {"identity", *onnx.ACTIVATIONS}


def parity(each: QuantizedPolicy) -> dict[str, float]:
    source = Source.of(each)
    rows = observations(np.random.default_rng(1), 40, source.widths[0])
    made = onnx.write(source, "net", {"random": rows})
    report = json.loads(made.files["net.parity.json"])
    assert report["opset"] == OPSET and f"opset {OPSET}" in made.sentences[0]
    return report["parity"]["random"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kind_agrees_with_the_engine_in_onnx_runtime(name: str) -> None:
    built = PROGRAMS[name]
    if {kernels.ACTIVATIONS[number] for number in built.ops["activation"]} - SERVED:
        with pytest.raises(ExportError, match="expected activations out of"):
            parity(policy_of(built))
        return
    found = parity(policy_of(built))
    # Inputs of integer layers: half a step of the row's largest number, summed. A
    # layer norm of such a row and 8-bit codes are the coarsest of them.
    steps = 127 if "8bit" in name else 1000 if "int4" in name else 32640
    bound = 40 / steps if "int" in name or name == "dueling" else 1e-5
    assert found["largest_error"] <= bound * max(1, found["largest_action"])


@pytest.mark.parametrize("quantizer", quantizers.QUANTIZERS)
def test_every_quantizer_agrees_with_the_engine(quantizer: str) -> None:
    found = parity(policy(quantizer, fields=NESTED))
    assert found["largest_error"] <= 1e-3 * found["largest_action"]


@pytest.mark.parametrize("quantizer", ["int8", "int8_tensor", "int4"])
def test_8bit_inputs_go_through_a_calibrated_pair(quantizer: str) -> None:
    each = quantize_graph(*network(), quantizer, "8bit")
    source, rows = Source.of(each), flat(40)
    made = onnx.write(source, "net", {"random": rows})
    kinds = [node.op_type for node in load(made.files["net.onnx"]).graph.node]
    assert kinds.count("QuantizeLinear") == 2
    assert kinds.count("DequantizeLinear") == 4
    found = json.loads(made.files["net.parity.json"])["parity"]["random"]
    # Half a step of the 40 inputs of the last layer, which has weights of up to 4.
    assert found["largest_error"] <= 2 * 40 * 4 / 127 / 2


def test_c_and_onnx_serve_the_same_kinds() -> None:
    assert set(onnx.KINDS) == set(c.KINDS)


def test_a_kind_without_an_emitter_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(onnx.KINDS, "layer_norm")
    with pytest.raises(ExportError, match=r"got operation 1 \('norm', layer_norm\)"):
        parity(policy())


@pytest.mark.parametrize("quantizer", quantizers.QUANTIZERS)
def test_arrays_stand_for_the_weights_by_name(quantizer: str) -> None:
    each = policy(quantizer)
    content = npz.write(Source.of(each), "net", {}).files["net.npz"]
    arrays = np.load(io.BytesIO(content), allow_pickle=False)
    weight, made = network()[1][0], quantizers.get(quantizer)
    expected = made.quantize(weight).dequantize().T
    np.testing.assert_array_equal(arrays["0.torso.weight"], expected)
    np.testing.assert_array_equal(arrays["0.torso.bias"], network()[1][1])
    facts = json.loads(str(arrays["operations"]))
    assert [op["name"] for op in facts["operations"]][:2] == ["torso", "norm"]
    if "0.torso.codes" in arrays:
        codes = arrays["0.torso.codes"].astype(np.float32)
        if "0.torso.zero_point" in arrays:
            codes -= arrays["0.torso.zero_point"][:, None]
        steps = codes * arrays["0.torso.scale"][:, None]
        np.testing.assert_array_equal(steps.T, expected)
