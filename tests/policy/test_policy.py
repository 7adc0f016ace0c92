"""Policies as a person uses them: called, asked about, refused."""

from __future__ import annotations

import threading
import tracemalloc
from typing import Any

import numpy as np
import pytest
from small_policies import FLAT, NESTED, flat, nested, network, policy

from acme_quant.kernels import reference
from acme_quant.policy import quantizers
from acme_quant.policy.graph import Field, Graph, Layer, Parameter
from acme_quant.policy.quantized_policy import QuantizedPolicy
from acme_quant.policy.rows import ObservationError
from acme_quant.policy.writer import PolicyWriter

# --- Acting ---------------------------------------------------------------------------


@pytest.mark.parametrize("activations", ["wide", "8bit"])
@pytest.mark.parametrize("quantizer", quantizers.QUANTIZERS)
def test_engine_runs_as_the_reference_does(quantizer: str, activations: str) -> None:
    writer = PolicyWriter(network()[0], quantizer, activations)
    written = writer.write(network()[1])
    ours = QuantizedPolicy(written)
    layout = ours._layout
    expected = reference.run(
        layout.ops, written.tensors(), layout.value_widths, flat(9)
    )
    # Integers are exact; float32 sums of 40 products and the tanh differ in the last
    # bits: 40 * 2**-24 of sums below 40, twice for the affine layer, and the head sums
    # 40 of them. A last bit can also move an activation's code by one, which is
    # 1/127 of an activation of at most 1 in the 8-bit mode.
    step = 40 * 4 / 127 if activations == "8bit" else 40 * 4 / 32640
    np.testing.assert_allclose(ours.batch(flat(9)), expected, rtol=0, atol=step)


def test_call_equals_the_row_of_a_batch() -> None:
    for fields, observation in ((FLAT, flat()[0]), (NESTED, nested())):
        ours = policy(fields=fields)
        batch = [observation, observation, observation]
        stacked = (
            np.stack(batch)
            if fields is FLAT
            else {
                "position": np.stack([x["position"] for x in batch]),
                "camera": [
                    np.stack([np.asarray(x["camera"][i]) for x in batch])
                    for i in (0, 1)
                ],
            }
        )
        np.testing.assert_array_equal(
            ours.batch(stacked), np.tile(ours(observation), (3, 1))
        )


def test_nested_observation_is_laid_out_in_the_order_of_its_fields() -> None:
    row = np.array([[0, 1, 2, 3, 0.5, 1, 1, 1]], np.float32)
    ours = policy(fields=NESTED)
    out = np.empty((1, 2), np.float32)
    ours.run_rows(row, out)
    np.testing.assert_array_equal(ours(nested()), out[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int64])
def test_observation_of_a_kindred_dtype_is_converted(dtype: type) -> None:
    ours, whole = policy(), np.arange(5)
    expected = ours(whole.astype(np.float32))
    np.testing.assert_array_equal(ours(whole.astype(dtype)), expected)
    np.testing.assert_array_equal(ours(whole.tolist()), expected)
    np.testing.assert_array_equal(ours(np.arange(10.0)[::2] / 2), expected)


def test_every_call_returns_an_array_of_its_own() -> None:
    ours = policy()
    first = ours(flat()[0])
    kept = first.copy()
    ours(-flat()[0])
    np.testing.assert_array_equal(first, kept)


@pytest.mark.parametrize(
    "field", [Field((), (), "int64"), Field((), (3, 2), "float32")]
)
def test_action_has_the_modules_shape_and_dtype(field: Field) -> None:
    ours = policy(action=field)
    for action, leading in ((ours(flat()[0]), ()), (ours.batch(flat(3)), (3,))):
        assert (action.shape, action.dtype) == (leading + field.shape, field.dtype)


def test_batch_of_no_rows_gives_no_actions() -> None:
    assert policy().batch(flat(0)).shape == (0, 2)


def test_batches_beyond_the_engines_block_equal_single_rows() -> None:
    ours, rows = policy(), flat(300)
    each = np.stack([ours(row) for row in rows])
    np.testing.assert_array_equal(ours.batch(rows), each)


def test_threads_share_a_policy() -> None:
    ours, rows = policy(), flat(64)
    expected, failures = ours.batch(rows), []

    def act() -> None:
        for _ in range(20):
            for row, action in zip(rows, expected):
                if not np.array_equal(ours(row), action):
                    failures.append(row)

    threads = [threading.Thread(target=act) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_memory_does_not_grow_over_many_calls() -> None:
    ours, observation, dictionary = policy(), flat()[0], nested()
    other = policy(fields=NESTED)

    def calls(count: int) -> None:
        for _ in range(count):
            ours(observation)
            other(dictionary)

    calls(100)
    tracemalloc.start()
    calls(100)
    before = tracemalloc.get_traced_memory()[0]
    calls(10_000)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000  # A byte or two a call; an array would be over a hundred.


# --- Observations that are refused ----------------------------------------------------


@pytest.mark.parametrize(
    "observation, message",
    [
        (np.zeros(4, np.float32), r"'observation' of shape \[5\], got \[4\]"),
        (np.zeros((1, 5), np.float32), r"shape \[5\], got \[1, 5\]"),
        (np.zeros(5, np.complex64), "dtype float32, got complex64"),
        (np.array(["a"] * 5), "dtype float32, got <U1"),
        (np.array([None] * 5), "dtype float32, got object"),
        (
            np.array([0, 1, np.nan, 0, 0], np.float32),
            "finite .*, got nan",
        ),
        (np.array([0, 1, -np.inf, 0, 0]), "finite numbers in 'observation', got -inf"),
        ({"position": np.zeros(5)}, "array as 'observation', got keys"),
        (None, r"'observation' of shape \[5\], got \[\]"),
    ],
)
def test_wrong_flat_observation_is_named(observation: Any, message: str) -> None:
    with pytest.raises(ObservationError, match=message):
        policy()(observation)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"position": np.zeros(4)}, r"'position' of shape \[3\], got \[4\]"),
        ({"camera": [np.zeros((2, 2), np.uint8)]}, "'camera/1'.*, got 1 entries"),
        ({"camera": np.zeros((2, 2, 2))}, "'camera/0' of dtype uint8, got float64"),
        ({"extra": 1.0}, "3 fields .camera/0, camera/1, position., got 4"),
        ({"position": {"x": 1}}, "array as 'position', got keys .'x'."),
        ({"position": [0, np.nan, 0]}, "finite numbers in 'position', got nan"),
    ],
)
def test_wrong_nested_observation_is_named(changes: dict, message: str) -> None:
    observation = nested(**changes)
    if isinstance(observation["position"], list):
        observation["position"] = np.array(observation["position"])
    with pytest.raises(ObservationError, match=message):
        policy(fields=NESTED)(observation)


def test_missing_field_is_named() -> None:
    observation = nested()
    del observation["position"]
    with pytest.raises(ObservationError, match=r"'position' .*, got keys \['camera'\]"):
        policy(fields=NESTED)(observation)
    with pytest.raises(ObservationError, match="'camera/0' .*, got ndarray"):
        policy(fields=NESTED)(np.zeros(8, np.float32))


def test_batches_of_different_sizes_are_named() -> None:
    camera = (np.zeros((3, 2, 2), np.uint8), np.zeros(3))
    wrong = {"camera": camera, "position": np.zeros((2, 3))}
    with pytest.raises(ObservationError, match=r"'position' of shape \[3, 3\], got"):
        policy(fields=NESTED).batch(wrong)
    with pytest.raises(ObservationError, match="leading batch"):
        policy().batch(1.0)


# --- Reports --------------------------------------------------------------------------


def test_layers_tell_what_was_quantized_and_why() -> None:
    torso, norm, head, rescale = policy().layers()
    assert (torso.name, torso.kind, torso.quantized) == ("torso", "linear", True)
    assert "32640" in torso.why
    assert torso.nbytes == 40 * 32 + 40 * 4 + 40 * 4
    assert (norm.kind, norm.quantized, norm.format) == ("layer_norm", False, "float32")
    assert "would save nothing" in norm.why
    assert (head.quantized, head.nbytes) == (True, 2 * 64 + 2 * 4)
    assert rescale.nbytes == 4
    assert "stores weights as float16" in policy("float16").layers()[0].why


def test_int8_policy_holds_little_more_than_a_byte_per_weight() -> None:
    sizes = [17, 2048, 2048, 2048, 6]
    layers, shapes = [], []
    for i, (k, n) in enumerate(zip(sizes, sizes[1:])):
        weight, bias = Parameter((k, n), 2 * i), Parameter((n,), 2 * i + 1)
        layers.append(Layer("linear", (i,), i + 1, k, n, weight=weight, bias=bias))
        shapes += [(k, n), (n,)]
    fields, action = (Field((), (17,), "float32"),), Field((), (6,), "float32")
    graph = Graph(tuple(layers), tuple(sizes), fields, action, tuple(shapes))
    weights = sum(int(np.prod(shape)) for shape in shapes)
    assert PolicyWriter(graph).nbytes <= 1.1 * weights


def test_largest_action_change() -> None:
    ours, full = policy("int8"), policy("float32")
    difference = np.abs(ours.batch(flat(9)) - full.batch(flat(9))).max()
    assert ours.max_action_change(flat(9), full) == difference > 0
    assert ours.max_action_change(flat(9), lambda x: full.batch(x) + 1) > 0.9
    assert ours.max_action_change(flat(0), full) == 0
    with pytest.raises(ValueError, match=r"actions \[9, 2\] .* got \[9\]"):
        ours.max_action_change(flat(9), lambda x: np.zeros(9))


def test_share_of_changed_integer_actions() -> None:
    ours = policy(action=Field((), (), "int64"))
    actions = ours.batch(flat(4))
    changed = actions + np.array([0, 0, 0, 5])
    assert ours.max_action_change(flat(4), lambda x: changed) == 0.25


def test_repr_is_one_line() -> None:
    assert repr(policy()).startswith("QuantizedPolicy(int8, 4 layers, ")
