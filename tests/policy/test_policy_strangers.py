"""What a stranger's payload may say of itself: all of it is right, or it is refused."""

from __future__ import annotations

import copy
import pickle
import random

import numpy as np
import pytest
from small_policies import flat, policy

from acme_quant import kernels
from acme_quant.policy import payload
from acme_quant.policy.payload import PayloadError
from acme_quant.policy.quantized_policy import QuantizedPolicy
from acme_quant.policy.requantize import graph_of

TRIALS = 1500
NUMBERS = (-(2**31), -2, -1, 0, 1, 2, 3, 7, 8, 31, 40, 99, 65537, 2**31 - 1)
WORDS = ("", "(", "O", "int8", "float32", "i4,i4", "wide")


def resealed(layout: dict, tensors: list[np.ndarray]) -> payload.Payload:
    """Returns a payload of that layout; tensors of the same size keep their numbers."""
    specs = [payload.TensorSpec(n, d, tuple(s)) for n, d, s in layout["tensors"]]
    rest = {key: value for key, value in layout.items() if key != "tensors"}
    blank = payload.blank(payload.plan(rest, specs))
    for new, old in zip(blank.tensors(), tensors):
        if (new.shape, new.dtype) == (old.shape, old.dtype):
            new[...] = old
    return payload.seal(blank, 1, 1)


def mutate(value: object, rng: random.Random) -> object:
    """Changes one number, word or length somewhere within a nest."""
    if isinstance(value, dict):
        key = rng.choice(sorted(value))
        return {**value, key: mutate(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        return [*value[:at], mutate(value[at], rng), *value[at + 1 :]]
    if isinstance(value, list):
        return rng.choice([value[:-1], [*value, *value[:1]]])
    return rng.choice(NUMBERS if isinstance(value, int) else WORDS)


def use(loaded: QuantizedPolicy) -> None:
    """Asks a policy for all that it tells of itself, and runs it."""
    assert repr(loaded)
    for layer in loaded.layers():
        assert layer.kind in kernels.KINDS and layer.format in kernels.FORMATS
        assert layer.quantized <= (layer.kind in ("linear", "conv2d"))
    graph_of(payload.decode(loaded.payload))
    if loaded.observation[0].width == 5:
        loaded.run_rows(flat(), np.empty((1, loaded.output.width), np.float32))


@pytest.mark.parametrize("quantizer", ["int8", "int4", "int8_tensor", "float16"])
def test_a_changed_layout_is_refused_at_load_or_right(quantizer: str) -> None:
    decoded = payload.decode(policy(quantizer).payload)
    rng = random.Random(quantizer)
    loaded = 0
    for _ in range(TRIALS // 4):
        layout = mutate(copy.deepcopy(decoded.layout), rng)
        try:
            sealed = resealed(layout, decoded.tensors())
        except (ValueError, TypeError, KeyError, OverflowError):
            continue  # What cannot be sealed is no payload.
        try:
            changed = QuantizedPolicy(sealed)
        except PayloadError:
            continue
        loaded += 1
        use(changed)
    assert loaded > 10


@pytest.mark.parametrize("part", ["weight", "scale", "zero_point", "bias", "format"])
def test_what_a_layer_does_not_read_is_left_out_of_its_record(part: str) -> None:
    decoded = payload.decode(policy().payload)
    layout = copy.deepcopy(decoded.layout)
    layout["ops"][-1][kernels.OP_FIELDS.index("kind")] = kernels.KINDS.index("unary")
    for name in ("scale", "bias"):
        layout["ops"][-1][kernels.OP_FIELDS.index(name)] = -1
    assert QuantizedPolicy(resealed(layout, decoded.tensors())).layers()
    layout["ops"][-1][kernels.OP_FIELDS.index(part)] = 99
    with pytest.raises(PayloadError, match=f"unary.*expected {part}"):
        QuantizedPolicy(resealed(layout, decoded.tensors()))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, "pickle"])
def test_a_policy_is_copied_and_pickled_by_its_bytes(copied: object) -> None:
    first = policy()
    again = pickle.loads(pickle.dumps(first)) if copied == "pickle" else copied(first)
    assert again.payload == first.payload and again.version == first.version
    np.testing.assert_array_equal(again(flat()[0]), first(flat()[0]))
