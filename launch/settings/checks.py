"""Everything about a run that can be refused before any process starts."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from acme_quant.launch.settings import arguments, spec_child
from acme_quant.launch.settings import config as run_config
from acme_quant.launch.settings.actors import ACTORS
from acme_quant.launch.settings.config import Run, UsageError
from acme_quant.policy import quantizers
from acme_quant.settings.declaration import setting

if TYPE_CHECKING:
    from acme import specs

    from acme_quant.policy.graph import Graph

HelpRequested = arguments.HelpRequested
NODES_IN = {"local_mp": run_config.PROCESSES, "local_mt": run_config.THREADS}


@dataclasses.dataclass(frozen=True)
class Launch:
    """How a run is started: the settings of `train` that are not the run's."""

    lp_launch_type: str = setting(
        "local_mp",
        "local_mp: a process for each node; local_mt: all in one, for debugging.",
        choices=tuple(NODES_IN),
        serves="processes",
    )


def parse(argv: Sequence[str]) -> Run:
    """Returns the run that the command line describes.

    Args:
      argv: program name and flags.

    Raises:
      UsageError: for an unknown flag, a malformed value or a left-over argument.
      HelpRequested: for --help.
    """
    values, launch = arguments.flags_of(argv, Launch)
    run = run_config.from_flags(values)
    if run.config.workdir:
        # An environment may change the folder of the process that it is made in.
        absolute = os.path.abspath(run.config.workdir)
        config = dataclasses.replace(run.config, workdir=absolute)
        run = dataclasses.replace(run, config=config)
    arguments.refuse_settings(launch, run.absent)
    return dataclasses.replace(run, nodes_in=NODES_IN[launch.lp_launch_type])


def prepare(run: Run) -> tuple[specs.EnvironmentSpec, Graph | None]:
    """Checks the run, and makes what its nodes need.

    Returns:
      The environment's spec and the lowered policy, None with actors that take no
      payload.

    Raises:
      UsageError: with one sentence on the first thing that cannot be run.
    """
    check_settings(run)
    payload = ACTORS[run.config.actor].payload
    with spec_child.SpecChild(run.config.env, run.environment_options) as child:
        if payload:
            _import_lowering()  # Takes as long as the other process.
        spec = _checked(run, child.spec)
        check_workdir(run.workdir)
        return spec, lower(run, spec) if payload else None


def check(run: Run) -> specs.EnvironmentSpec:
    """Checks the run's settings and returns its environment's spec.

    Raises:
      UsageError: with one sentence on the first thing that cannot be run.
    """
    check_settings(run)
    options = run.environment_options
    return _checked(run, lambda: spec_child.read_spec(run.config.env, options))


def _checked(
    run: Run, read: Callable[[], specs.EnvironmentSpec]
) -> specs.EnvironmentSpec:
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
    arguments.refuse_settings(run.config, run.absent)
    arguments.refuse_settings(run.agent_config)
    try:
        _check_texts(run.config)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _check_texts(config: run_config.RunConfig) -> None:
    if not re.fullmatch("[A-Z]{3}", config.country_iso_code):
        raise UsageError(
            "expected --country_iso_code of three capital letters, such as FRA, got "
            f"{config.country_iso_code!r}."
        )
    if not config.workdir:
        raise UsageError("expected --workdir=FOLDER for the run's files, got none.")
    if config.communication:
        quantizers.check_precisions(config.quantizer, config.communication)


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


def lower(run: Run, spec: specs.EnvironmentSpec) -> Graph:
    """Returns the lowered policy of a run.

    Raises:
      UsageError: if it cannot be lowered, naming the operation.
    """
    _import_lowering()
    from acme_quant import lowering

    with _hidden_gpus(run.layout == run_config.PROCESSES):
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


@contextlib.contextmanager
def _hidden_gpus(hide: bool) -> Iterator[None]:
    """Has TensorFlow start without cards here, where a learner elsewhere wants them.

    Processes that are started later see the cards as before.
    """
    name = "CUDA_VISIBLE_DEVICES"
    before = os.environ.get(name)
    if hide:
        os.environ[name] = ""
    try:
        yield
    finally:
        os.environ.pop(name, None)
        if before is not None:
            os.environ[name] = before
