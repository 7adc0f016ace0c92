"""Policies as a person uses them: called, saved, loaded, asked about, refused."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import threading
import tracemalloc
from typing import Any, Iterator, Optional

import numpy as np
import pytest

import acme_quant
from acme_quant import kernels, payload, policy_writer, quantizers
from acme_quant.graph import Field, Graph, Layer, Parameter
from acme_quant.kernels import reference
from acme_quant.policy import QuantizedPolicy, quantize_graph
from acme_quant.policy_rows import ObservationError
from acme_quant.policy_writer import PolicyWriter

ROOT = pathlib.Path(__file__).parents[1]
FLAT = (Field((), (5,), "float32"),)
NESTED = (
    Field(("camera", 0), (2, 2), "uint8"),
    Field(("camera", 1), (), "float64"),
    Field(("position",), (3,), "float32"),
)


def network(
    fields: tuple = FLAT, action: Optional[Field] = None, hidden: int = 40
) -> tuple[Graph, list[np.ndarray]]:
    """Returns (graph, variables): linear, layer norm with tanh, linear, affine."""
    action = action or Field((), (2,), "float32")
    inputs, outputs = sum(f.width for f in fields), action.width
    shapes = ((inputs, hidden), (hidden,), (hidden,), (hidden,), (hidden, outputs))
    weight, bias, scale, offset, head = (
        Parameter(shape, variable=i) for i, shape in enumerate(shapes)
    )
    sizes = (inputs, hidden)
    twice = Parameter.of(np.array([2.0]))
    layers = (
        Layer("linear", (0,), 1, *sizes, weight=weight, bias=bias, name="torso"),
        Layer(
            *("layer_norm", (1,), 2, hidden, hidden, "tanh"),
            scale=scale,
            bias=offset,
            epsilon=1e-5,
            name="norm",
        ),
        Layer("linear", (2,), 3, hidden, outputs, weight=head, name="head"),
        Layer("affine", (3,), 4, outputs, outputs, scale=twice, name="rescale"),
    )
    graph = Graph(
        layers, (inputs, hidden, hidden, outputs, outputs), fields, action, shapes
    )
    rng = np.random.default_rng(0)
    return graph, [rng.normal(size=shape).astype(np.float32) for shape in shapes]


def flat(rows: int = 1) -> np.ndarray:
    return np.random.default_rng(1).normal(size=(rows, 5)).astype(np.float32)


def nested(**changes: Any) -> dict:
    camera = (np.arange(4, dtype=np.uint8).reshape(2, 2), 0.5)
    return {"position": np.ones(3, np.float32), "camera": camera, **changes}


def policy(quantizer: str = "int8", **parts: Any) -> QuantizedPolicy:
    return quantize_graph(*network(**parts), quantizer)


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
    step = 40 * 4 / 127 if activations == "8bit" else 40 * 4 / 32767
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
    assert second._program is first._program
    assert (first.version, second.version) == (1, 2)
    assert not np.array_equal(first(flat()[0]), second(flat()[0]))
    other = first.replace(PolicyWriter(graph, "float32").write(variables, 3).buffer)
    assert other._program is not first._program and other.quantizer == "float32"


def test_buffers_are_used_again() -> None:
    graph, variables = network()
    for quantizer in quantizers.QUANTIZERS:
        writer = PolicyWriter(graph, quantizer)
        buffer = payload.aligned_buffer(writer.nbytes)
        writer.write([5 * v for v in variables], buffer=buffer)
        again = QuantizedPolicy(writer.write(variables, buffer=buffer))
        fresh = quantize_graph(graph, variables, quantizer)
        np.testing.assert_array_equal(again.batch(flat(9)), fresh.batch(flat(9)))


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
    one_more = min(largest + 1, 32768) * weight_max * inputs
    assert largest == 32767 or largest == 0 or one_more > 2**31 - 1
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


# --- Reports --------------------------------------------------------------------------


def test_layers_tell_what_was_quantized_and_why() -> None:
    torso, norm, head, rescale = policy().layers()
    assert (torso.name, torso.kind, torso.quantized) == ("torso", "linear", True)
    assert "32767" in torso.why
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


# --- NumPy alone ----------------------------------------------------------------------

SCRIPT = """
import sys, time
start = time.perf_counter()
import numpy as np
with_numpy = time.perf_counter()
import acme_quant
from acme_quant import policy
print("import", time.perf_counter() - with_numpy)
ours = acme_quant.QuantizedPolicy.load(sys.argv[1])
rows = np.load(sys.argv[2])
assert np.array_equal(ours.batch(rows), np.load(sys.argv[3]))
assert np.array_equal(np.stack([ours(row) for row in rows]), np.load(sys.argv[3]))
heavy = {"tensorflow", "acme", "sonnet", "launchpad", "reverb", "jax", "tree"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
"""


def run_elsewhere(python: str, folder: pathlib.Path, cwd: pathlib.Path) -> str:
    """Loads and runs an int8 policy in another process; returns what it prints."""
    ours = policy("int8")
    ours.save(folder / "policy.aq")
    np.save(folder / "rows.npy", flat(9))
    np.save(folder / "actions.npy", ours.batch(flat(9)))
    files = [str(folder / name) for name in ("policy.aq", "rows.npy", "actions.npy")]
    done = subprocess.run(
        [python, "-c", SCRIPT, *files],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_running_a_policy_imports_numpy_alone(
    tmp_path: pathlib.Path,
) -> None:
    printed = run_elsewhere(sys.executable, tmp_path, ROOT)
    seconds = float(printed.split()[1])
    assert seconds < 0.5  # 20 ms on an idle machine


def test_public_names_are_found_and_others_are_not() -> None:
    assert acme_quant.QuantizedPolicy is QuantizedPolicy
    assert "quantize_policy" in dir(acme_quant)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = acme_quant.no_such_name


def interpreters(version: str) -> Iterator[str]:
    """Yields working interpreters of a version, on the path or from pyenv."""
    candidates = [shutil.which(f"python{version}")]
    if shutil.which("pyenv"):
        root = subprocess.run(["pyenv", "root"], capture_output=True, text=True)
        versions = pathlib.Path(root.stdout.strip(), "versions")
        candidates += map(str, sorted(versions.glob(f"{version}.*/bin/python")))
    for candidate in filter(None, candidates):
        if subprocess.run([candidate, "-c", ""], capture_output=True).returncode == 0:
            yield candidate


def attempt(*command: Any) -> None:
    """Runs a step that needs the network; skips the test if it fails."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=300
    )
    if done.returncode:
        pytest.skip(f"{command[0]} failed: {done.stderr.strip().splitlines()[-1]}")


@pytest.mark.parametrize("version", ["3.9", "3.13"])
def test_policy_runs_on_other_pythons(version: str, tmp_path: pathlib.Path) -> None:
    python = next(interpreters(version), None)
    if python is None:
        pytest.skip(f"no CPython {version} on this machine")
    inner = tmp_path / "venv" / "bin" / "python"
    if shutil.which("uv"):
        attempt("uv", "venv", "-q", "--python", python, tmp_path / "venv")
        install = ("uv", "pip", "install", "-q", "--python", inner)
    else:
        attempt(python, "-m", "venv", tmp_path / "venv")
        install = (inner, "-m", "pip", "-q", "install")
    attempt(*install, "numpy", "setuptools<81")
    copy = tmp_path / "acme_quant_source"
    patterns = shutil.ignore_patterns(".*", "*.so", "__pycache__", "build", "runs")
    shutil.copytree(ROOT, copy, ignore=patterns)
    built = subprocess.run(
        [inner, "setup.py", "-q", "build_ext", "--inplace"],
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert built.returncode == 0, built.stderr
    run_elsewhere(str(inner), tmp_path, copy)
