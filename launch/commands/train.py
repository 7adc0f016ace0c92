"""`acme-quant train`: checks the request, launches the program, sees it to its end."""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from collections.abc import Sequence

from acme_quant.launch.settings import checks
from acme_quant.launch.settings.config import Run, UsageError


def main(argv: Sequence[str]) -> int:
    """Trains as the flags say.

    Args:
      argv: program name and flags.

    Returns:
      0 when the run reached its steps, 1 when a node failed, 2 when the request cannot
      be run (one sentence says why, before any process starts), 128 + its number when
      a signal ended it.
    """
    # Before TensorFlow is imported, and for every node: no start-up chatter, and no
    # process that compiles TensorFlow's sources anew (12 s instead of 4).
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # The learner takes of an accelerator's memory what it needs, and not all of it.
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    try:
        return _train(argv, time.time())
    except UsageError as error:
        print(f"{argv[0]}: {error}", file=sys.stderr)
        return 2


def _train(argv: Sequence[str], now: float) -> int:
    """Runs what the flags ask for, in a folder that is this run's alone."""
    try:
        run = checks.parse(argv)
    except checks.HelpRequested as text:
        print(text)
        return 0
    spec, graph = checks.prepare(run)
    from acme_quant.launch.checkpoints import resume
    from acme_quant.launch.nodes.context import Context
    from acme_quant.launch.running import lifecycle, lock
    from acme_quant.launch.settings import memory, outlook

    holder = lock.WorkdirLock(run.workdir)
    try:
        holder.acquire()
        run, sentences = resume.resume(run, graph)
    except lock.WorkdirInUse as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(
            f"expected a folder to write to, got --workdir={run.workdir}: {error}."
        ) from error
    size = memory.replay_bytes(spec, run.agent_config.max_replay_size)
    sentences += outlook.warnings(run)
    for sentence in (*sentences, memory.describe(size, memory.available_bytes())):
        print(f"acme-quant: {sentence}", flush=True)
    if run.start.actor_steps >= run.config.max_actor_steps:
        print(
            f"acme-quant: nothing to do: {run.start.actor_steps} of "
            f"--max_actor_steps={run.config.max_actor_steps} are done"
        )
        return 0
    _write_config(run, argv)
    context = Context(run, now - run.start.wall_s, spec)
    if graph is not None:
        context = dataclasses.replace(context, graph=graph)
    return lifecycle.launch(context)


def _write_config(run: Run, argv: Sequence[str]) -> None:
    from acme_quant.launch.settings import provenance

    try:
        provenance.write(run, argv)
    except OSError as error:
        raise UsageError(
            f"expected room for config.json in --workdir={run.workdir}, got: {error}."
        ) from error
