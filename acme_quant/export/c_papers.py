"""What stands around an exported policy's C: header, self-test and README."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from acme_quant.export.source import Source

FLAGS = "-std=c99 -O3 -ffp-contract=off"


class Sizes(NamedTuple):
    """Bytes of an exported policy: constants, and static memory it writes to."""

    constant_bytes: int
    scratch_bytes: int


def banner(source: Source, name: str) -> str:
    """Returns the comment at the head of NAME.c."""
    policy = source.policy
    return (
        f"/* The policy `{name}`, written by acme-quant export.\n"
        f" *\n"
        f" * Weights {plain(policy.quantizer)}, activations "
        f"{plain(policy.activations)}.\n"
        f" * Policy version {policy.version}, learner step {policy.learner_step}.\n"
        f" * Build it with {FLAGS}; see README.md.\n"
        f" */"
    )


def header(source: Source, name: str, sizes: Sizes) -> str:
    """Returns NAME.h."""
    guard, action = f"{name.upper()}_H", source.layout.output
    fields = "\n".join(
        f" *   {start:5} to {start + width - 1:5}  {plain(path)}"
        for path, start, width in source.columns()
    )
    return f"""/* The policy `{name}`: an observation in, an action out.
 *
 * Columns of an observation:
{fields}
 * The action has {action.width} numbers, in the policy's own type {action.dtype}.
 *
 * Constants: {sizes.constant_bytes} bytes. Static memory: {sizes.scratch_bytes} bytes,
 * so that one caller at a time may call. Nothing is allocated.
 */
#ifndef {guard}
#define {guard}

enum {{
  {name}_observation_width = {source.widths[0]},
  {name}_action_width = {action.width}
}};

/* Returns 0, or -1 if the observation holds a NaN or Inf: the action stays as it is. */
int {name}_act(const float *observation, float *action);

#endif
"""


def self_test(source: Source, name: str, rows: np.ndarray) -> str:
    """Returns NAME_test.c: observations, and the bits that the engine gave for them.

    Args:
      source: the policy.
      name: a C identifier.
      rows: float32 [M, W].
    """
    actions = source.actions(rows)
    return _SELF_TEST.format(
        name=name,
        rows=len(rows),
        columns=rows.shape[1],
        actions=actions.shape[1],
        observed=_bits(rows),
        expected=_bits(actions),
    )


def _bits(array: np.ndarray) -> str:
    cells = [f"0x{bits:x}u," for bits in array.view(np.uint32).reshape(-1).tolist()]
    lines = ["".join(cells[i : i + 8]) for i in range(0, len(cells), 8)]
    return "\n".join(lines)


def plain(text: str) -> str:
    """Returns a name of the user's as it may stand in a comment of C."""
    ascii_text = text.encode("ascii", "replace").decode()
    return "".join(c for c in ascii_text if c.isalnum() or c in "_/.-:~ ") or "unnamed"


_SELF_TEST = """/* Compares {name}_act with the engine's bits; an argument: times it. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "{name}.h"

enum {{ ROWS = {rows}, COLUMNS = {columns}, ACTIONS = {actions} }};

static const uint32_t observed[ROWS * COLUMNS] = {{
{observed}}};
static const uint32_t expected[ROWS * ACTIONS] = {{
{expected}}};

static void call(int row, float action[ACTIONS]) {{
  float observation[COLUMNS];
  memcpy(observation, observed + row * COLUMNS, sizeof observation);
  if ({name}_act(observation, action) == 0) return;
  memset(action, 0xff, sizeof(float) * ACTIONS);
}}

/* Any NaN equals any other. */
static int differs(float action, uint32_t bits) {{
  float wanted;
  memcpy(&wanted, &bits, sizeof wanted);
  return memcmp(&action, &bits, sizeof bits) != 0 &&
         !(action != action && wanted != wanted);
}}

static int wrong_numbers(void) {{
  int wrong = 0;
  for (int row = 0; row < ROWS; row++) {{
    float action[ACTIONS];
    call(row, action);
    for (int i = 0; i < ACTIONS; i++)
      wrong += differs(action[i], expected[row * ACTIONS + i]);
  }}
  return wrong;
}}

static double nanoseconds(void) {{
  float action[ACTIONS];
  long calls = 0;
  clock_t start = clock();
  while (clock() - start < CLOCKS_PER_SEC / 5)
    for (int row = 0; row < ROWS; row++, calls++) call(row, action);
  return 1e9 * (double)(clock() - start) / CLOCKS_PER_SEC / (double)calls;
}}

int main(int argc, char **argv) {{
  int wrong = wrong_numbers();
  (void)argv;
  printf("{name}: %d of %d numbers differ\\n", wrong, ROWS * ACTIONS);
  if (argc > 1) printf("{name}: %.0f ns a call\\n", nanoseconds());
  return wrong != 0;
}}
"""


def readme(source: Source, name: str, sizes: Sizes) -> str:
    """Returns README.md."""
    policy, output = source.policy, source.layout.output
    fields = "\n".join(
        f"| {start} to {start + width - 1} | `{plain(path)}` |"
        for path, start, width in source.columns()
    )
    return f"""# The policy `{name}` in C99

`acme-quant export` wrote this folder.

- Weights {plain(policy.quantizer)}, activations {plain(policy.activations)}.
- Policy version {policy.version}, learner step {policy.learner_step}.

    gcc {FLAGS} -Wall -Wextra -Werror -pedantic \\
      {name}.c {name}_test.c -o {name}_test -lm
    ./{name}_test        # compares bits with the engine's
    ./{name}_test time   # and times a call

Call `{name}_act(observation, action)` of `{name}.h`. It returns 0. It returns -1 if an
observation holds a NaN or Inf; the action then stays as it is.

| Columns of the observation | Field |
|---|---|
{fields}

- The action has {output.width} numbers (`{output.dtype}` in the policy, `float` here).
- Constants take {sizes.constant_bytes} bytes.
- Static memory takes {sizes.scratch_bytes} bytes. Nothing is allocated.
  One caller at a time may call.
- The only library is libm, for `sqrtf`. Activations are the engine's own formulas.

## Exactness

The action has the same bits as that of the Python runtime{_EXACT[source.float_sums]}.
This needs IEEE 754 floats, each operation rounded once, in the order written:

- `-ffp-contract=off` forbids fused multiply-adds. The source asks for it too, by a
  pragma.
- `-ffast-math`, or a part of it, is refused by `#error`. So is a compiler that computes
  floats in a wider type.
"""


_EXACT = {
    False: ", whichever kernels that one uses",
    True: (
        " with its portable\nkernels (`ACME_QUANT_ISA=portable`). Faster kernels sum "
        "float32 in another order"
    ),
}
