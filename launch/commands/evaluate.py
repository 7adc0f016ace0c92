"""`acme-quant evaluate`: the int8 and the float32 policy of a checkpoint side by side.

Only the policy's arrays of the checkpoint are read, not the optimizers'. Both number
formats run in the same engine and meet the same initial states, in a process of their
own: see `episodes`.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import sys
import tempfile
import typing
from collections.abc import Iterator, Sequence

import numpy as np

from acme_quant.environments.errors import in_one_line
from acme_quant.launch.commands.episodes import EpisodesProcess, Score
from acme_quant.launch.settings import checks, provenance, spec_child, user_process
from acme_quant.launch.settings.config import Run, UsageError
from acme_quant.records.say import is_unread
from acme_quant.settings import flags
from acme_quant.settings.declaration import setting

if typing.TYPE_CHECKING:
    from acme_quant.policy.graph import Graph
    from acme_quant.policy.quantized_policy import QuantizedPolicy
    from acme_quant.records.checkpoint import Checkpoint

HEADER = ("policy", "return", "std", "least", "most", "steps", "bytes")


@dataclasses.dataclass(frozen=True)
class Options:
    """The command's flags."""

    workdir: str = setting("", "Folder of the run.")
    checkpoint: int | None = setting(
        None, "Its number; the newest if none.", at_least=1
    )
    episodes: int = setting(10, "Episodes of each policy.", at_least=1)
    # Simulators take seeds of 32 bit, and each episode has one of its own.
    seed: int = setting(0, "Seed of the environment.", at_least=0, at_most=2**31 - 1)
    video: str = setting("", "MP4 file for an episode of the first.")


def main(argv: Sequence[str]) -> int:
    """Evaluates as the flags say.

    Args:
      argv: program name and flags.

    Returns:
      0, 2 when the request cannot be met, 1 when the environment fails: one sentence
      says why.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    try:
        options = _options(argv)
        if isinstance(options, str):
            print(options)
        else:
            _evaluate(options)
    except (UsageError, user_process.Refused) as error:
        print(f"{argv[0]}: {error}", file=sys.stderr)
        return 2
    except user_process.Failed as error:
        print(f"{argv[0]}: the evaluation failed: {error}", file=sys.stderr)
        return 1
    except Exception as error:  # Whatever a person's environment or files hold.
        if isinstance(error, BrokenPipeError) and is_unread(sys.stdout):
            raise
        words = in_one_line(error)
        print(f"{argv[0]}: the evaluation failed: {words}", file=sys.stderr)
        return 1
    return 0


def _options(argv: Sequence[str]) -> Options | str:
    """Returns what the flags ask for; for --help, the help."""
    try:
        return flags.parse(argv, Options)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _evaluate(values: Options) -> None:
    workdir = pathlib.Path(values.workdir)
    if not values.workdir or not workdir.is_dir():
        raise UsageError(f"expected --workdir=FOLDER of a run, got {values.workdir!r}.")
    found, variables = load_policy(workdir, values.checkpoint)
    provenance.find_modules_in(found.facts.get("folder", ""))
    run = Run.from_settings(found.facts["settings"])
    policies = _policies(run, found, variables)
    _print_row(*HEADER)
    cut = 0
    for name, score in evaluate(run, policies, values.episodes, values.seed):
        _print_score(name, score, policies[name].nbytes)
        cut += score.cut
    if cut:
        print(
            f"note: {cut} episodes had not ended after --evaluation_max_steps="
            f"{run.config.evaluation_max_steps} steps"
        )
    if values.video:
        from acme_quant.launch.commands import video

        first = next(iter(policies.values()))
        print(video.record(run, first, values.seed, pathlib.Path(values.video)))


def load_policy(
    workdir: pathlib.Path, number: int | None
) -> tuple[Checkpoint, list[np.ndarray]]:
    """Returns a checkpoint and its policy's variables; says when it had to fall back.

    Raises:
      UsageError: if there is no such checkpoint, or none that is whole.
    """
    from acme_quant.launch.checkpoints.saving import CHECKPOINTS
    from acme_quant.records.checkpoint import BrokenCheckpoint, Mismatch
    from acme_quant.records.checkpoints import Checkpoints, NoCheckpoint

    store = Checkpoints(workdir / CHECKPOINTS)
    candidates = [number] if number is not None else store.numbers()[::-1]
    for candidate in candidates:
        try:
            found = store.open(candidate)
            names = found.facts["policy"]
            arrays = found.read(names)
        except BrokenCheckpoint as error:
            print(f"acme-quant: {error}", file=sys.stderr)
            continue
        except (NoCheckpoint, Mismatch) as error:
            raise UsageError(str(error)) from error
        return found, [arrays[name] for name in names]
    raise UsageError(f"expected a whole checkpoint in {workdir}, got none.")


def _policies(
    run: Run, found: Checkpoint, variables: list[np.ndarray]
) -> dict[str, QuantizedPolicy]:
    """Returns the policy in both number formats.

    Raises:
      UsageError: if there is no such environment.
    """
    from acme_quant.policy import quantized_policy as policy

    counts = found.facts["counts"]
    steps = counts["learner_steps"]
    print(
        f"checkpoint {found.number} of {run.config.env}: "
        f"{counts.get('actor_steps', 0):.0f} actor steps, {steps} learner steps"
    )
    try:
        spec = spec_child.read_spec(run.config.env, run.environment_options)
    except ValueError as error:
        raise UsageError(str(error)) from error
    graph = checks.lower(run, spec)
    _check_shapes(found, graph, variables)
    quantizer = run.config.quantizer
    names = ("int8" if quantizer == "float32" else quantizer, "float32")
    return {
        name: policy.quantize_graph(
            graph, variables, name, run.config.activations, learner_step=steps
        )
        for name in names
    }


def _check_shapes(
    found: Checkpoint, graph: Graph, variables: Sequence[np.ndarray]
) -> None:
    ours = [tuple(shape) for shape in graph.variable_shapes]
    theirs = [variable.shape for variable in variables]
    if ours != theirs:
        raise UsageError(
            f"expected the environment that checkpoint {found.number} was trained in, "
            f"with a policy of shapes {theirs}, got one of shapes {ours}."
        )


def evaluate(
    run: Run, policies: dict[str, QuantizedPolicy], episodes: int, seed: int
) -> Iterator[tuple[str, Score]]:
    """Yields what each policy reaches in `episodes` episodes without exploration.

    Raises:
      Refused: if the environment cannot be made.
      Failed: if it fails.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = {name: str(pathlib.Path(folder, f"{name}.aq")) for name in policies}
        for name, policy in policies.items():
            policy.save(files[name])
        with EpisodesProcess(run, files, episodes, seed) as process:
            for name in policies:
                yield name, process.score()


def _print_score(name: str, score: Score, nbytes: int) -> None:
    numbers = (
        score.returns.mean(),
        score.returns.std(),
        score.returns.min(),
        score.returns.max(),
    )
    length = score.lengths.mean()
    _print_row(name, *(f"{n:.2f}" for n in numbers), f"{length:.0f}", f"{nbytes}")


def _print_row(name: str, *cells: str) -> None:
    print(f"{name:14}" + "".join(f"{cell:>10}" for cell in cells), flush=True)
