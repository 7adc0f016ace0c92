"""`acme-quant export`: a policy as C99, as ONNX or as NumPy arrays, for other programs.

The policy is that of a run's checkpoint, or a file that `QuantizedPolicy.save` wrote.
"""

from __future__ import annotations

import keyword
import os
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from absl import flags

from acme_quant import export
from acme_quant.export import folder
from acme_quant.launch.settings.config import Run, UsageError
from acme_quant.policy import quantized_policy, quantizers, writer
from acme_quant.policy.quantized_policy import QuantizedPolicy
from acme_quant.policy.rows import RowFiller

if TYPE_CHECKING:
    from acme import specs, types

# Observations drawn at random, and the most that are recorded.
RANDOM_ROWS = 256
RECORDED_ROWS = 1000
C_KEYWORDS = frozenset(
    "auto break case char const continue default do double else enum extern float for "
    "goto if inline int long register restrict return short signed sizeof static "
    "struct switch typedef union unsigned void volatile while main".split()
)


def main(argv: Sequence[str]) -> int:
    """Exports as the flags say.

    Args:
      argv: program name and flags.

    Returns:
      0, or 2 when the request cannot be met: one sentence says why.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    values = _flags()
    if any(argument in ("--help", "-help", "-h") for argument in argv[1:]):
        print(values.get_help())
        return 0
    try:
        rest = values(list(argv))[1:]
        if rest:
            raise UsageError(f"expected flags only, got {rest[0]!r}.")
        _check(values)
        _export(values)
    except (flags.Error, UsageError, export.ExportError) as error:
        print(f"{argv[0]}: {error}", file=sys.stderr)
        return 2
    return 0


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    formats = tuple(export.FORMATS)
    flags.DEFINE_enum("format", "c", formats, "What to write.", flag_values=values)
    for name, text in (
        ("workdir", "Folder of the run whose policy it is."),
        ("policy", "Or a file that QuantizedPolicy.save wrote."),
        ("out", "The new folder."),
        ("quantizer", "Number format of a run's weights; the run's own if empty."),
        ("activations", "wide or 8bit inputs of layers; the run's own if empty."),
        ("observations", "NPY file, float32 [M, W], to compare with the engine on."),
    ):
        flags.DEFINE_string(name, "", text, flag_values=values)
    flags.DEFINE_string(
        "name", "policy", "Name of files and functions.", flag_values=values
    )
    flags.DEFINE_integer(
        "checkpoint", None, "Its number; the newest if none.", flag_values=values
    )
    return values


def _check(values: flags.FlagValues) -> None:
    """Refuses what can be refused before anything is read.

    Raises:
      UsageError: with one sentence on the first fault.
    """
    name = values.name
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name)
    if not plain or name in C_KEYWORDS or keyword.iskeyword(name):
        raise UsageError(f"expected a C identifier as --name, got {name!r}.")
    if bool(values.workdir) == bool(values.policy):
        raise UsageError("expected either --workdir=FOLDER or --policy=FILE.")
    for flag in ("quantizer", "activations", "checkpoint"):
        if values.policy and values[flag].present:
            raise UsageError(
                f"--{flag} would change nothing: the file of --policy is one version "
                "in one number format."
            )
    if values.quantizer and values.quantizer not in quantizers.QUANTIZERS:
        raise UsageError(
            f"expected --quantizer out of {', '.join(quantizers.QUANTIZERS)}, got "
            f"{values.quantizer!r}."
        )
    if values.activations and values.activations not in writer.ACTIVATIONS:
        raise UsageError(
            f"expected --activations out of {', '.join(writer.ACTIVATIONS)}, got "
            f"{values.activations!r}."
        )
    if values.workdir and not pathlib.Path(values.workdir).is_dir():
        raise UsageError(f"expected --workdir=FOLDER of a run, got {values.workdir!r}.")
    if not values.out:
        raise UsageError("expected --out=FOLDER, got none.")
    folder.check(pathlib.Path(values.out))


def _export(values: flags.FlagValues) -> None:
    if values.policy:
        policy, recorded = _load(values.policy), None
    else:
        policy, recorded = _of_run(values)
    if values.observations:
        recorded = _read_rows(values.observations, policy)
    observations = {"random": random_rows(policy)}
    if recorded is not None:
        observations["recorded"] = recorded
    source = export.Source.of(policy)
    made = export.FORMATS[values.format](source, values.name, observations)
    folder.write(pathlib.Path(values.out), made.files)
    print(f"{policy} -> {values.out}: {', '.join(made.files)}")
    for sentence in made.sentences:
        print(f"  {sentence}")


def _load(path: str) -> QuantizedPolicy:
    """Returns a saved policy.

    Raises:
      UsageError: it cannot be read, or is none this version can read.
    """
    try:
        return QuantizedPolicy.load(path)
    except OSError as error:
        raise UsageError(
            f"expected a file as --policy={path}, got: {error.strerror}."
        ) from error
    except ValueError as error:
        raise UsageError(str(error)) from error


def _of_run(values: flags.FlagValues) -> tuple[QuantizedPolicy, np.ndarray]:
    """Returns a checkpoint's policy, and the observations of an episode with it."""
    from acme_quant import environments
    from acme_quant.launch.commands import evaluate
    from acme_quant.launch.settings import checks

    workdir = pathlib.Path(values.workdir)
    found, variables = evaluate.load_policy(workdir, values.checkpoint)
    run = Run.from_settings(found.facts["settings"])
    spec = environments.environment_spec(run.config.env, **run.environment_options)
    policy = quantized_policy.quantize_graph(
        checks.lower(run, spec),
        variables,
        values.quantizer or run.config.quantizer,
        values.activations or run.config.activations,
        learner_step=found.facts["counts"]["learner_steps"],
    )
    return policy, _recorded(run, spec, policy)


def _recorded(
    run: Run, spec: specs.EnvironmentSpec, policy: QuantizedPolicy
) -> np.ndarray:
    """Returns the observations of a greedy episode, float32 [M, W]."""
    from acme_quant.launch.commands import evaluate

    filler, rows = RowFiller(policy.observation), []

    class Recorded:
        def __call__(self, observation: types.NestedArray) -> np.ndarray:
            rows.append(filler.rows(observation))
            return policy(observation)

    evaluate.evaluate(run, spec, Recorded(), episodes=1, seed=0)
    return np.stack(rows[:RECORDED_ROWS])


def _read_rows(path: str, policy: QuantizedPolicy) -> np.ndarray:
    """Returns observations of an NPY file.

    Raises:
      UsageError: it is not one, or not of the policy's width, or not finite.
    """
    width = sum(field.width for field in policy.observation)
    try:
        rows = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise UsageError(
            f"expected an NPY file as --observations={path}, got: {error}."
        ) from error
    if rows.ndim != 2 or rows.shape[1] != width or rows.dtype != np.float32:
        raise UsageError(
            f"expected --observations of float32 [M, {width}], got {rows.dtype} "
            f"{list(rows.shape)}."
        )
    if not len(rows) or not np.isfinite(rows).all():
        raise UsageError("expected one or more finite observations, got others.")
    return np.ascontiguousarray(rows)


def random_rows(policy: QuantizedPolicy) -> np.ndarray:
    """Returns random observations, float32 [M, W]: normal, or bytes."""
    rng = np.random.default_rng(0)
    parts = [
        rng.integers(0, 2 if field.dtype == "bool" else 256, (RANDOM_ROWS, field.width))
        if np.dtype(field.dtype).kind != "f"
        else rng.normal(size=(RANDOM_ROWS, field.width))
        for field in policy.observation
    ]
    return np.concatenate(parts, axis=1).astype(np.float32)
