"""A policy as C99: one source, one header, a self-test and a README.

Each operation of the engine becomes a call of a function of `runtime.c`; `KINDS`, at
the foot, has one emitter a kind. Values are static arrays, padded with zeros as the
engine's rows are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from acme_quant.export import c_check, c_papers
from acme_quant.export.c_text import picked
from acme_quant.export.source import (
    Exported,
    ExportError,
    Observations,
    Operation,
    Source,
)
from acme_quant.policy.qtensor import padded

C_TYPES = {
    "float32": "float",
    "float16": "uint16_t",
    "int8": "int8_t",
    "uint8": "uint8_t",
    "int32": "int32_t",
}
LINE = 88
# Observations of each kind in a self-test.
TESTED = 16

_GUARDS = """
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

/* Each float operation must round once, and in the order written. */
#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || \\
    defined(__RECIPROCAL_MATH__) || (defined(__FINITE_MATH_ONLY__) && \\
                                     __FINITE_MATH_ONLY__)
#error "expected exact float arithmetic, got -ffast-math or a part of it"
#endif
#if FLT_EVAL_METHOD != 0
#error "expected floats in their own precision (on x86: -msse2 -mfpmath=sse)"
#endif
#if INT_MAX < 2147483647
#error "expected an int of 32 bits or more"
#endif
/* No a*b+c may become one fused operation. */
#if defined(__clang__) || !defined(__GNUC__)
#pragma STDC FP_CONTRACT OFF
#else
#pragma GCC optimize("-ffp-contract=off")
#endif
"""


def write(
    source: Source,
    name: str,
    observations: Observations,
    compiler: str | None = c_check.COMPILER,
) -> Exported:
    """Writes the files, and tries them with a C compiler.

    Args:
      source: the policy.
      name: a C identifier.
      observations: the first of each kind go into the self-test.
      compiler: its name; None: they are not tried.

    Raises:
      ExportError: an operation has no emitter.
    """
    rows = np.concatenate([rows[:TESTED] for rows in observations.values()])
    program = _Program(source)
    sizes = program.sizes()
    texts = {
        f"{name}.h": c_papers.header(source, name, sizes),
        f"{name}.c": program.text(name),
        f"{name}_test.c": c_papers.self_test(source, name, rows),
        "README.md": c_papers.readme(source, name, sizes),
    }
    files = {file: text.encode("ascii") for file, text in texts.items()}
    memory = (
        f"{sizes.constant_bytes} bytes of constants, {sizes.scratch_bytes} bytes of "
        "static memory"
    )
    return Exported(files, [memory, *c_check.tried(files, name, compiler)])


class _Program:
    """The source under construction."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._tables: list[str] = []
        self.constant_bytes = 0
        self.calls = [self._call(op) for op in source.operations]

    def sizes(self) -> c_papers.Sizes:
        """Returns what the policy takes in constant and in static memory."""
        floats = sum(map(padded, self._source.widths)) + self._patch()
        return c_papers.Sizes(self.constant_bytes, 4 * floats + 2 * self._codes())

    def text(self, name: str) -> str:
        """Returns NAME.c."""
        source = self._source
        last = source.operations[-1]["output"]
        lines = [
            f"int {name}_act(const float *observation, float *action) {{",
            f"  if (!copy_finite(observation, {source.widths[0]}, v0)) return -1;",
            *(f"  {line}" for call in self.calls for line in call.splitlines()),
            f"  memcpy(action, v{last}, sizeof(float) * {source.widths[last]});",
            "  return 0;",
            "}",
        ]
        act = "\n".join(lines)
        scratch = self._scratch()
        runtime = picked(act)
        return "\n".join(
            [
                c_papers.banner(source, name),
                f'#include "{name}.h"',
                _GUARDS,
                *scratch,
                "",
                runtime,
                *self._tables,
                "",
                act,
                "",
            ]
        )

    def table(self, name: str, array: np.ndarray) -> str:
        """Writes an array down and returns its name; '0' for None."""
        if array is None:
            return "0"
        if array.dtype == np.float32:
            cells = map(_float, array.reshape(-1).tolist())
        else:
            view = np.uint16 if array.dtype == np.float16 else array.dtype
            cells = map(str, array.view(view).reshape(-1).tolist())
        kind = C_TYPES[array.dtype.name]
        body = "\n".join(_lines(cells))
        self._tables.append(f"static const {kind} {name}[{array.size}] = {{\n{body}}};")
        self.constant_bytes += array.nbytes
        return name

    def define(self, text: str) -> None:
        """Writes a definition of another kind down, after the tables so far."""
        self._tables.append(text)

    def steps(self, op: Operation) -> list[str]:
        """Returns 'scale, step, bias, step' of an operation; a step of 0 broadcasts."""
        cells = []
        for part in ("scale", "bias"):
            array = getattr(op, part)
            wide = array is not None and array.size > 1
            cells += [self.table(f"{part}{op.number}", array), str(int(wide))]
        return cells

    def width(self, op: Operation, value: str = "input") -> int:
        """Returns the numbers in a value that an operation names."""
        return self._source.widths[op[value]]

    def _call(self, op: Operation) -> str:
        emit = KINDS.get(op.kind)
        if emit is None:
            raise ExportError(
                f"expected operations out of {', '.join(KINDS)}, got {op}."
            )
        lines = [
            f"/* {op.number}: {c_papers.plain(op.name)}, {op.kind} */",
            emit(self, op),
        ]
        if op.activation != "identity":
            lines.append(_activation(op, _written(self, op)))
        return "\n".join(lines)

    def _scratch(self) -> list[str]:
        widths = self._source.widths
        lines = ["/* One row of each value; beyond its width it stays zero. */"]
        lines += [f"static float v{i}[{padded(w)}];" for i, w in enumerate(widths)]
        if self._codes():
            lines.append(f"static int16_t scratch_codes[{self._codes()}];")
        if self._patch():
            lines.append(f"static float scratch_patch[{self._patch()}];")
        return lines

    def _codes(self) -> int:
        operations = self._source.operations
        widths = [padded(op["inputs"]) for op in operations if op["activation_max"]]
        return max(widths, default=0)

    def _patch(self) -> int:
        operations = self._source.operations
        widths = [padded(op["inputs"]) for op in operations if op.kind == "conv2d"]
        return max(widths, default=0)


def _float(x: float) -> str:
    """Returns the shortest exact C99 constant of a float32."""
    if x == int(x) and abs(x) < 2**24:
        return f"{x:.0f}.f"
    mantissa, _, exponent = x.hex().partition("p")
    return f"{mantissa.rstrip('0')}p{int(exponent)}f"


def _lines(cells: Iterable[str]) -> list[str]:
    """Returns cells with commas, in lines of at most LINE characters."""
    lines, line = [], ""
    for cell in cells:
        if len(line) + len(cell) + 1 > LINE:
            lines.append(line)
            line = ""
        line += f"{cell},"
    return [*lines, line]


def _at(op: Operation) -> str:
    """Returns where an operation writes."""
    offset = op["output_offset"]
    return f"v{op['output']}" + (f" + {offset}" if offset else "")


def _written(program: _Program, op: Operation) -> int:
    """Returns how many numbers an operation writes."""
    return op["inputs"] if op.kind == "copy" else program.width(op, "output")


def _activation(op: Operation, width: int) -> str:
    at, name = _at(op), f"{op.activation}_one"
    if not picked(f"{name}(0)").strip():
        raise ExportError(
            f"expected an activation with a C text, got '{op.activation}' of {op}."
        )
    place = f"({at})[i]" if " " in at else f"{at}[i]"
    return f"for (int32_t i = 0; i < {width}; i++) {place} = {name}({place});"


def _product(program: _Program, op: Operation, x: str, y: str) -> str:
    """Returns the call of a product of one row, with its tables."""
    integer = op.storage.startswith("int")
    weight = program.table(f"weight{op.number}", op.weight)
    names = {
        part: program.table(f"{part}{op.number}", getattr(op, part))
        for part in ("scale", "bias", "zero_point")
    }
    channels = f"channels{op.number}"
    program.define(
        f"static const channels {channels} = {{{names['scale']}, {names['bias']}, "
        f"{names['zero_point']}}};"
    )
    sizes = f"{x}, {op['inputs']}, {op['outputs']}"
    if integer and op["activation_max"]:
        sizes += f", {op['activation_max']}"
    function = (
        op.storage if op["activation_max"] or not integer else (f"widened_{op.storage}")
    )
    return f"product_{function}({weight}, &{channels}, {sizes}, {y});"


def _linear(program: _Program, op: Operation) -> str:
    return _product(program, op, f"v{op['input']}", _at(op))


def _conv2d(program: _Program, op: Operation) -> str:
    image = _image(program, op)
    x = f"patch_at({image}, v{op['input']}, p, {op['inputs']})"
    call = _product(program, op, x, f"{_at(op)} + p * {op['outputs']}")
    return _each_position(op, call)


def _max_pool(program: _Program, op: Operation) -> str:
    image, y = _image(program, op), f"{_at(op)} + p * {op['channels']}"
    return _each_position(op, f"pool_patch({image}, v{op['input']}, p, {y});")


def _image(program: _Program, op: Operation) -> str:
    """Returns the address of a window's sizes, with their table."""
    names = "height width channels kernel_height kernel_width stride_height"
    names += " stride_width pad_top pad_left out_height out_width"
    sizes = ", ".join(str(op[name]) for name in names.split())
    program.define(f"static const op_record image{op.number} = {{{sizes}}};")
    return f"&image{op.number}"


def _each_position(op: Operation, call: str) -> str:
    positions = op["out_height"] * op["out_width"]
    return f"for (int32_t p = 0; p < {positions}; p++)\n  {call}"


def _layer_norm(program: _Program, op: Operation) -> str:
    cells = [f"v{op['input']}", str(program.width(op)), _float(float(op.epsilon))]
    return f"layer_norm({', '.join([*cells, *program.steps(op), _at(op)])});"


def _affine(program: _Program, op: Operation) -> str:
    cells = [f"v{op['input']}", str(program.width(op)), *program.steps(op), _at(op)]
    return f"{op.kind}({', '.join(cells)});"


def _pair(program: _Program, op: Operation) -> str:
    a, b = (int(program.width(op, value) > 1) for value in ("input", "other"))
    width = program.width(op, "output")
    return f"{op.kind}(v{op['input']}, {a}, v{op['other']}, {b}, {width}, {_at(op)});"


def _softmax(program: _Program, op: Operation) -> str:
    return f"softmax(v{op['input']}, {program.width(op)}, {_at(op)});"


def _reduced(function: str) -> Callable[[_Program, Operation], str]:
    return lambda program, op: (
        f"*{_at(op)} = {function}(v{op['input']}, {program.width(op)});"
    )


def _unary(program: _Program, op: Operation) -> str:
    return _copied(op, f"v{op['input']}", program.width(op))


def _copy(program: _Program, op: Operation) -> str:
    return _copied(op, f"v{op['input']} + {op['input_offset']}", op["inputs"])


def _copied(op: Operation, x: str, width: int) -> str:
    return f"memcpy({_at(op)}, {x}, sizeof(float) * {width});"


KINDS = {
    "linear": _linear,
    "conv2d": _conv2d,
    "layer_norm": _layer_norm,
    "unary": _unary,
    "affine": _affine,
    "clip": _affine,
    "add": _pair,
    "subtract": _pair,
    "multiply": _pair,
    "mean": _reduced("mean"),
    "argmax": _reduced("argmax_row"),
    "copy": _copy,
    "maximum": _pair,
    "minimum": _pair,
    "softmax": _softmax,
    "max_pool": _max_pool,
}
