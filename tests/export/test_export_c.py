"""Exported C gives the engine's bits, for every layer kind and every quantizer."""

from __future__ import annotations

import pathlib
import subprocess

import numpy as np
import pytest
from exported_policies import (
    COMPILERS,
    FLAGS,
    Library,
    assert_same_bits,
    dueling,
    every_kind,
    policy_of,
    rows_for,
    sources,
    untried,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from kernel_programs import Built, linear, operation, row_program
from small_policies import FLAT, NESTED, policy

from acme_quant import kernels
from acme_quant.export import c
from acme_quant.export.source import ExportError, Source
from acme_quant.policy import quantizers
from acme_quant.policy.graph import Field
from acme_quant.policy.quantized_policy import QuantizedPolicy

needs_compiler = pytest.mark.skipif(not COMPILERS, reason="no gcc and no clang here")


def assert_all_same(library: Library, policies: dict[str, QuantizedPolicy]) -> None:
    rng = np.random.default_rng(1)
    for name, each in policies.items():
        source = Source.of(each)
        rows = rows_for(rng, source.widths[0])
        ours = library.actions(name, rows, each.output.width)
        assert_same_bits(ours, source.actions(rows), name)


def every_policy() -> dict[str, QuantizedPolicy]:
    rng = np.random.default_rng(0)
    built = {**every_kind(rng), "dueling": dueling(rng)}
    found = {name: policy_of(each) for name, each in built.items()}
    for quantizer in quantizers.QUANTIZERS:
        found[f"net_{quantizer}"] = policy(quantizer)
    found["nested"] = policy(fields=NESTED)
    return found


@needs_compiler
@pytest.mark.parametrize("compiler", COMPILERS)
def test_every_kind_and_quantizer_gives_the_bits_of_the_engine(
    tmp_path: pathlib.Path, compiler: str
) -> None:
    policies = every_policy()
    assert_all_same(Library(tmp_path, policies, compiler), policies)


@needs_compiler
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("flags", ["-std=gnu99 -O3 -mfma -mavx2", "-std=c11 -O0"])
def test_other_flags_give_the_same_bits(
    tmp_path: pathlib.Path, compiler: str, flags: str
) -> None:
    if "-mfma" in flags and "avx2" not in kernels.ISAS:
        pytest.skip("no AVX2 here")
    names = ("net_int8", "net_float32", "unary_softplus", "layer_norm_scale_bias")
    every = every_policy()
    policies = {name: every[name] for name in names}
    assert_all_same(Library(tmp_path, policies, compiler, flags.split()), policies)


@needs_compiler
@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("flag", ["-ffast-math", "-ffinite-math-only"])
def test_inexact_arithmetic_is_refused_at_compile_time(
    tmp_path: pathlib.Path, compiler: str, flag: str
) -> None:
    for file, content in sources(policy(), "inexact").items():
        (tmp_path / file).write_bytes(content)
    done = subprocess.run(
        [compiler, "-std=c99", flag, "-c", "inexact.c"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode and "expected exact float arithmetic" in done.stderr


def chain(draw: st.DrawFn) -> Built:
    """Returns a few layers one after the other, each reading the last value."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    ops, tensors, widths = [], [], [draw(st.integers(1, 40))]
    for number in range(draw(st.integers(1, 5))):
        width = widths[-1]
        kind = draw(st.sampled_from(("linear", "layer_norm", "affine", "clip", "add")))
        activation = draw(st.sampled_from(kernels.ACTIVATIONS))
        if kind == "linear":
            storage = draw(st.sampled_from(kernels.FORMATS))
            zero = storage == "int8" and draw(st.booleans())
            largest = draw(st.sampled_from((0, 127, 1000))) if "int" in storage else 0
            layer = linear(
                rng,
                width,
                draw(st.integers(1, 40)),
                storage,
                zero_point=zero,
                bias=draw(st.booleans()),
                activation_max=largest,
            )
        elif kind == "add":
            layer = Built(operation("add"), [], [width, width])
            layer.ops["other"] = draw(st.sampled_from([0, number]))
            if widths[layer.ops[0]["other"]] not in (1, width):
                layer.ops["other"] = number
        else:
            sizes = (
                st.sampled_from((width, 1)) if kind != "layer_norm" else st.just(width)
            )
            parts = {
                part: draw(sizes) for part in ("scale", "bias") if draw(st.booleans())
            }
            layer = row_program(rng, kind, width, width, **parts)
        op = layer.ops[0]
        op["input"], op["output"] = number, number + 1
        op["activation"] = kernels.ACTIVATIONS.index(activation)
        for part in ("weight", "scale", "zero_point", "bias"):
            op[part] += len(tensors) if op[part] >= 0 else 0
        ops.append(op)
        tensors += layer.tensors
        widths.append(layer.value_widths[-1])
    return Built(np.array(ops), tensors, widths)


@needs_compiler
@settings(max_examples=4, deadline=None)
@given(graphs=st.lists(st.composite(chain)(), min_size=4, max_size=8))
def test_random_graphs_give_the_bits_of_the_engine(
    tmp_path_factory: pytest.TempPathFactory, graphs: list[Built]
) -> None:
    policies = {f"graph{i}": policy_of(graph) for i, graph in enumerate(graphs)}
    folder = tmp_path_factory.mktemp("graphs")
    assert_all_same(Library(folder, policies, COMPILERS[0]), policies)


@needs_compiler
def test_an_observation_that_is_not_finite_leaves_the_action_alone(
    tmp_path: pathlib.Path,
) -> None:
    library = Library(tmp_path, {"net": policy()}, COMPILERS[0])
    for bad in (np.nan, np.inf, -np.inf):
        rows = np.full((1, FLAT[0].width), bad, np.float32)
        with pytest.raises(AssertionError):
            library.actions("net", rows, 2)


@needs_compiler
def test_the_self_test_tells_right_from_wrong(tmp_path: pathlib.Path) -> None:
    files = untried(policy(), "net").files
    for file, content in files.items():
        (tmp_path / file).write_bytes(content)
    build = [COMPILERS[0], *FLAGS, "net.c", "net_test.c", "-o", "net_test", "-lm"]
    subprocess.run(build, cwd=tmp_path, check=True)
    subprocess.run(["./net_test"], cwd=tmp_path, check=True)
    text = (tmp_path / "net.c").read_text()
    wrong = text.replace("1.317748755e-8f", "1.3e-3f")
    assert wrong != text
    (tmp_path / "net.c").write_text(wrong)
    subprocess.run(build, cwd=tmp_path, check=True)
    assert subprocess.run(["./net_test"], cwd=tmp_path).returncode == 1


@needs_compiler
def test_no_name_of_the_policy_leaves_its_comment(tmp_path: pathlib.Path) -> None:
    fields = (Field(("a */ b", "é/*?\\"), (5,), "float32"),)
    Library(tmp_path, {"net": policy(fields=fields)}, COMPILERS[0])


def test_the_static_memory_is_as_stated() -> None:
    [text] = [f for n, f in untried(policy(), "net").files.items() if n == "net.h"]
    # Values of 5, 40, 40, 2 and 2 numbers in rows of 32; codes of 40 in 64.
    stated = 4 * (32 + 64 + 64 + 32 + 32) + 2 * 64
    assert f"Static memory: {stated} bytes" in text.decode()


def test_a_kind_without_an_emitter_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(c.KINDS, "layer_norm")
    with pytest.raises(ExportError, match=r"got operation 1 \('norm', layer_norm\)"):
        untried(policy(), "net")


def test_every_kind_with_an_emitter_is_tested() -> None:
    tested = every_kind(np.random.default_rng(0)).values()
    kinds = {kernels.KINDS[op["kind"]] for built in tested for op in built.ops}
    assert kinds == set(c.KINDS) & set(kernels.KINDS)


def test_a_parameter_that_is_not_finite_is_refused_by_name() -> None:
    built = row_program(np.random.default_rng(0), "affine", 4, 4, bias=4)
    built.tensors[0][1] = np.inf
    with pytest.raises(ExportError, match="finite bias of operation 0"):
        untried(policy_of(built), "net")
