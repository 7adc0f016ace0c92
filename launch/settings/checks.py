"""Everything about a run that can be refused before any process starts."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

from absl import flags

from acme_quant.launch.settings import arguments, spec_child
from acme_quant.launch.settings import config as run_config
from acme_quant.launch.settings.config import Run, UsageError
from acme_quant.policy import quantizers

HelpRequested = arguments.HelpRequested
LAUNCH_TYPES = ("local_mp", "local_mt")
# Settings that change nothing for Acme's own actors, who know no payload.
ENGINE_ONLY = (
    *("quantizer", "activations", "communication", "colocate_quantizer"),
    *("publish_period", "publish_period_s", "max_bad_policies", "evaluate_float32"),
)

# Settings of processes: they change nothing for a run that has one only.
PROCESSES_ONLY = (
    *("colocate_quantizer", "actor_failures", "max_actor_restarts"),
    *("checkpoint_replay", "max_replay_checkpoint_mb"),
)


def parse(argv: Sequence[str]) -> tuple[Run, str]:
    """Returns the run that the command line describes, and how to launch it.

    Args:
      argv: program name and flags.

    Raises:
      UsageError: for an unknown flag, a malformed value or a left-over argument.
      HelpRequested: for --help.
    """
    values = arguments.parse(argv, _define)
    run, launch_type = run_config.from_flags(values), values.lp_launch_type
    if run.config.workdir:
        # An environment may change the folder of the process that it is made in.
        absolute = os.path.abspath(run.config.workdir)
        config = dataclasses.replace(run.config, workdir=absolute)
        run = dataclasses.replace(run, config=config)
    if not run.config.num_actors and launch_type != LAUNCH_TYPES[0]:
        raise UsageError(
            "--lp_launch_type would change nothing with --num_actors=0, which starts "
            "nothing through Launchpad."
        )
    return run, launch_type


def _define(values: flags.FlagValues) -> None:
    flags.DEFINE_enum(
        "lp_launch_type",
        "local_mp",
        LAUNCH_TYPES,
        "local_mp: a process for each node; local_mt: all in one, for debugging.",
        flag_values=values,
    )


def prepare(run: Run) -> tuple[Any, Any]:
    """Checks the run, and makes what its nodes need.

    Returns:
      The acme.specs.EnvironmentSpec and the lowered policy, a policy.graph.Graph;
      None instead of the latter with Acme's own actors.

    Raises:
      UsageError: with one sentence on the first thing that cannot be run.
    """
    check_settings(run)
    with spec_child.SpecChild(run.config.env, run.environment_options) as child:
        if run.config.actor == "engine":
            _import_lowering()  # Takes as long as the other process.
        spec = _checked(run, child.spec)
        check_workdir(run.workdir)
        return spec, lower(run, spec) if run.config.actor == "engine" else None


def check(run: Run) -> Any:
    """Checks the run's settings and returns its acme.specs.EnvironmentSpec.

    Raises:
      UsageError: with one sentence on the first thing that cannot be run.
    """
    check_settings(run)
    options = run.environment_options
    return _checked(run, lambda: spec_child.read_spec(run.config.env, options))


def _checked(run: Run, read: Callable[[], Any]) -> Any:
    """Returns the spec that `read` returns, if the agent can act in it."""
    try:
        spec = read()
        run.agent.check(spec, run.agent_config)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return spec


def check_settings(run: Run) -> None:
    """Checks what can be told without the environment.

    Raises:
      UsageError: with one sentence on the first thing that cannot be run.
    """
    _check_numbers(run)
    if not run.config.num_actors:
        _check_one_process(run.config)
    try:
        _check_formats(run)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _check_numbers(run: Run) -> None:
    least = {
        "num_actors": 0,
        "envs_per_actor": 1,
        "max_actor_steps": 1,
        "publish_period": 1,
        "publish_period_s": 0,
        "update_period": 1,
        "max_bad_policies": 1,
        "evaluate_every": 0,
        "evaluation_episodes": 1,
        "checkpoint_every_s": 0,
        "keep_checkpoints": 1,
        "max_replay_checkpoint_mb": 1,
        "max_actor_restarts": 0,
        "step_timeout_s": 0,
        "seed": 0,
    }
    for name, low in least.items():
        value = getattr(run.config, name)
        if value < low:
            raise UsageError(f"expected --{name} of at least {low}, got {value}.")
    country = run.config.country_iso_code
    if not re.fullmatch("[A-Z]{3}", country):
        raise UsageError(
            "expected --country_iso_code of three capital letters, such as FRA, got "
            f"{country!r}."
        )
    if not run.config.workdir:
        raise UsageError("expected --workdir=FOLDER for the run's files, got none.")


def _check_formats(run: Run) -> None:
    config = run.config
    for name, choices in (
        ("actor", ("engine", "acme")),
        ("activations", ("wide", "8bit")),
        ("actor_failures", ("restart", "stop")),
    ):
        value = getattr(config, name)
        if value not in choices:
            raise UsageError(f"expected --{name} out of {choices}, got {value!r}.")
    quantizers.get(config.quantizer)
    if config.communication:
        quantizers.check_precisions(config.quantizer, config.communication)
    default = run_config.RunConfig()
    if config.publish_period_s and config.publish_period != default.publish_period:
        raise UsageError(
            "expected --publish_period or --publish_period_s, got both: "
            f"{config.publish_period} learner steps and {config.publish_period_s} s."
        )
    if config.actor == "acme" and config.envs_per_actor != 1:
        raise UsageError(
            "expected --envs_per_actor=1 with --actor=acme, whose actors step one "
            f"environment, got {config.envs_per_actor}."
        )
    for name in ENGINE_ONLY:
        if config.actor == "acme" and getattr(config, name) != getattr(default, name):
            raise UsageError(
                f"--{name} would change nothing with --actor=acme, whose actors take "
                "the learner's own variables."
            )


def _check_one_process(config: run_config.RunConfig) -> None:
    default = run_config.RunConfig()
    for name in PROCESSES_ONLY:
        if getattr(config, name) != getattr(default, name):
            raise UsageError(
                f"--{name} would change nothing with --num_actors=0, whose learner, "
                "replay and actor are one process."
            )
    for name, why in (
        ("actor", "Acme's own actors are processes"),
        ("envs_per_actor", "one process steps one environment"),
        ("publish_period_s", "a run that repeats cannot go by the clock"),
    ):
        value = getattr(config, name)
        if value != getattr(default, name):
            raise UsageError(
                f"expected --num_actors of at least 1 with --{name}={value}, got 0: "
                f"{why}."
            )


def check_workdir(workdir: pathlib.Path) -> None:
    """Makes the folder.

    Raises:
      UsageError: if it cannot be made or written.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"expected a folder to write in, got --workdir={workdir}: {error.strerror}."
        ) from error
    if not os.access(workdir, os.W_OK | os.X_OK):
        raise UsageError(f"expected a writable folder, got --workdir={workdir}.")


def lower(run: Run, spec: Any) -> Any:
    """Returns the lowered policy of a run.

    Raises:
      UsageError: if it cannot be lowered, naming the operation.
    """
    _import_lowering()
    from acme_quant import lowering

    networks = run.agent.make_networks(spec, run.agent_config)
    module = run.agent.policy_module(networks)
    try:
        return lowering.lower(module, spec.observations)
    except lowering.LoweringError as error:
        raise UsageError(str(error)) from error


def _import_lowering() -> None:
    import gym_notices.notices

    # Acme imports the old gym, which prints a notice about its age.
    gym_notices.notices.notices.clear()
    import acme_quant.lowering  # noqa: F401
