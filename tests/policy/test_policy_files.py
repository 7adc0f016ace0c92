"""Policies as bytes: written, saved, loaded, replaced, refused when damaged."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import pytest
from small_policies import flat, network, policy

from acme_quant import kernels
from acme_quant.policy import payload, quantizers
from acme_quant.policy import writer as policy_writer
from acme_quant.policy.quantized_policy import QuantizedPolicy, quantize_graph
from acme_quant.policy.writer import PolicyWriter

# --- Writing --------------------------------------------------------------------------


@pytest.mark.parametrize("index", range(5))
@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("quantizer", ["int8", "float32", "int4", "int8_tensor"])
def test_weights_that_are_not_finite_are_refused(
    quantizer: str, value: float, index: int
) -> None:
    graph, variables = network()
    variables[index].flat[-1] = value
    with pytest.raises(quantizers.NonFiniteWeights, match="finite"):
        quantize_graph(graph, variables, quantizer)


def test_unknown_names_are_refused() -> None:
    graph, variables = network()
    with pytest.raises(ValueError, match="wide, 8bit, got '4bit'"):
        quantize_graph(graph, variables, "int8", "4bit")
    with pytest.raises(ValueError, match="int8"):
        quantize_graph(graph, variables, "int3")
    with pytest.raises(ValueError, match="5 variables"):
        quantize_graph(graph, variables[:4])


@pytest.mark.parametrize("inputs", [1, 64, 517, 2048, 133152, 133153, 10**6])
@pytest.mark.parametrize("weight_max", [127, 254])
def test_activation_codes_cannot_overflow(inputs: int, weight_max: int) -> None:
    largest = policy_writer.activation_max("wide", inputs, weight_max == 254)
    assert largest * weight_max * inputs <= 2**31 - 1
    one_more = min(largest + 1, 32641) * weight_max * inputs
    assert largest == 32640 or largest == 0 or one_more > 2**31 - 1
    narrow = policy_writer.activation_max("8bit", inputs, weight_max == 254)
    assert narrow == (127 if largest else 0)


class OwnQuantizer:
    """A person's own: int8 with the scales of powers of two; writes no buffer."""

    name = "power_of_two"

    def quantize(self, weight: np.ndarray) -> quantizers.QTensor:
        largest = np.maximum(np.abs(weight).max(axis=0), np.float32(1e-30))
        scale = np.exp2(np.ceil(np.log2(largest / 127))).astype(np.float32)
        rows = -(-len(weight) // kernels.ROW) * kernels.ROW
        codes = np.zeros((weight.shape[1], rows), np.int8)
        codes[:, : len(weight)] = np.rint(weight / scale).T
        return quantizers.QTensor("int8", codes, weight.shape[::-1], scale)

    def error_bound(
        self, qtensor: quantizers.QTensor, weight: np.ndarray
    ) -> np.ndarray:
        return np.broadcast_to(qtensor.scale[:, None] / 2, weight.T.shape)


def test_own_quantizers_work_without_registration() -> None:
    graph, variables = network()
    ours = quantize_graph(graph, variables, OwnQuantizer())
    assert ours.quantizer == "power_of_two"
    full = quantize_graph(graph, variables, "float32")
    assert 0 < ours.max_action_change(flat(9), full) < 1


# --- Bytes ----------------------------------------------------------------------------


def test_saved_policy_acts_the_same_after_loading(tmp_path: pathlib.Path) -> None:
    graph, variables = network()
    ours = quantize_graph(graph, variables, "int8", "8bit", 7, 1234)
    ours.save(tmp_path / "policy.aq")
    loaded = QuantizedPolicy.load(tmp_path / "policy.aq")
    np.testing.assert_array_equal(loaded.batch(flat(9)), ours.batch(flat(9)))
    assert (loaded.version, loaded.learner_step) == (7, 1234)
    assert (loaded.quantizer, loaded.activations) == ("int8", "8bit")
    assert loaded.payload == ours.payload and loaded.nbytes == ours.nbytes
    assert [path.name for path in tmp_path.iterdir()] == ["policy.aq"]


def test_damaged_files_are_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "policy.aq"
    content = bytes(policy().payload)
    damaged = bytearray(content)
    damaged[-100] ^= 1
    newer = content[:8] + b"\x02" + content[9:]
    for wrong in (b"", content[:50], content[:-1], bytes(damaged), newer, content * 2):
        path.write_bytes(wrong)
        with pytest.raises(payload.PayloadError, match="policy.aq: expected .* got"):
            QuantizedPolicy.load(path)
    with pytest.raises(FileNotFoundError):
        QuantizedPolicy.load(tmp_path / "none")


def test_unwritable_path_leaves_nothing_behind(tmp_path: pathlib.Path) -> None:
    (tmp_path / "policy.aq").mkdir()
    with pytest.raises(OSError):
        policy().save(tmp_path / "policy.aq")
    assert [path.name for path in tmp_path.iterdir()] == ["policy.aq"]


def resealed(change: Any) -> bytes:
    """Returns a payload whose checksum holds, with its layout changed."""
    table = PolicyWriter(network()[0]).table
    layout = {k: v for k, v in table.layout.items() if k != "tensors"}
    change(layout)
    blank = payload.blank(payload.plan(layout, table.specs))
    return bytes(payload.seal(blank, 1, 1).buffer)


@pytest.mark.parametrize(
    "change",
    [
        lambda layout: layout.pop("names"),
        lambda layout: layout.update(more=1),
        lambda layout: layout.update(ops=3),
        lambda layout: layout.update(ops=[]),
        lambda layout: layout["ops"].pop(),
        lambda layout: layout["ops"][0].pop(),
        lambda layout: layout["ops"].__setitem__(0, 5),
        lambda layout: layout["ops"][0].__setitem__(0, 1.5),
        lambda layout: layout["ops"][0].__setitem__(0, True),
        lambda layout: layout["ops"][0].__setitem__(0, 1 << 31),
        lambda layout: layout["ops"][0].__setitem__(0, 99),
        lambda layout: layout["ops"][-1].__setitem__(4, 99),
        lambda layout: layout["ops"][-1].__setitem__(4, -1),
        lambda layout: layout["names"].__setitem__(0, 1),
        lambda layout: layout["value_widths"].append("a"),
        lambda layout: layout["value_widths"].__setitem__(0, 6),
        lambda layout: layout["value_widths"].__setitem__(-1, 3),
        lambda layout: layout.update(value_widths=[]),
        lambda layout: layout.update(observation=[]),
        lambda layout: layout.update(observation=[[[], [5], "object"]]),
        lambda layout: layout.update(observation=[[[], [5], "str"]]),
        lambda layout: layout.update(output=[[], [3], "float32"]),
        lambda layout: layout.update(output=None),
        lambda layout: layout.update(quantizer=None),
    ],
)
def test_layout_that_is_no_policy_is_refused(change: Any) -> None:
    with pytest.raises(payload.PayloadError, match="expected"):
        QuantizedPolicy.from_bytes(resealed(change))


def test_random_changes_of_a_sealed_layout_never_crash() -> None:
    rng = np.random.default_rng(0)
    table = PolicyWriter(network()[0]).table
    for _ in range(500):
        layout = {k: v for k, v in table.layout.items() if k != "tensors"}
        ops = [list(row) for row in layout["ops"]]
        for _ in range(rng.integers(1, 4)):
            row = ops[rng.integers(len(ops))]
            low, high = [(-2, 9), (-99, 999), (-(2**31), 2**31)][rng.integers(3)]
            row[rng.integers(len(row))] = int(rng.integers(low, high))
        layout["ops"] = ops
        sealed = payload.seal(payload.blank(payload.plan(layout, table.specs)), 1, 1)
        try:
            QuantizedPolicy.from_bytes(sealed.buffer)(flat()[0])
        except ValueError:
            pass


def test_replace_shares_the_program_of_the_same_layout() -> None:
    graph, variables = network()
    writer = PolicyWriter(graph)
    first = QuantizedPolicy.from_bytes(writer.write(variables, 1).buffer)
    second = first.replace(writer.write([-v for v in variables], 2).buffer)
    assert second._shared is first._shared
    assert (first.version, second.version) == (1, 2)
    assert not np.array_equal(first(flat()[0]), second(flat()[0]))
    other = first.replace(PolicyWriter(graph, "float32").write(variables, 3).buffer)
    assert other._shared is not first._shared and other.quantizer == "float32"


def test_buffers_are_used_again() -> None:
    graph, variables = network()
    for quantizer in quantizers.QUANTIZERS:
        writer = PolicyWriter(graph, quantizer)
        buffer = payload.aligned_buffer(writer.nbytes)
        writer.write([5 * v for v in variables], buffer=buffer)
        again = QuantizedPolicy(writer.write(variables, buffer=buffer))
        fresh = quantize_graph(graph, variables, quantizer)
        np.testing.assert_array_equal(again.batch(flat(9)), fresh.batch(flat(9)))
