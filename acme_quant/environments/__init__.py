"""Environments by name, behind one thin edge.

    make_environment("dm_control:cartpole:balance", seed=0)   # the suite, states
    make_environment("gym:CartPole-v1", seed=0)               # gymnasium
    make_environment("atari:Pong", seed=0)                    # ale-py, 84x84x4 uint8
    make_environment("envpool_dm:CheetahRun-v1", seed=0)      # EnvPool, if installed
    make_environment("my_package.tasks:make_maze", seed=0)    # a person's own

All are dm_env environments with the same numbers: observations float32 (images uint8),
reward and discount float32 scalars, continuous actions float32 [n] in [-1, 1], discrete
ones an int32 index. `edge` is that wrapper, `observations` and `actions` are its rules.

Only the library of the kind asked for is imported, and never TensorFlow: an actor
process pays for what it uses. Pixels of dm_control are not served.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

import dm_env

from acme_quant.environments import factory, nearest
from acme_quant.environments.actions import action_kind
from acme_quant.environments.edge import EdgeEnvironment
from acme_quant.environments.errors import (
    EpisodeFailed,
    OutOfSpec,
    UnknownEnvironment,
    UnsupportedEnvironment,
    in_one_line,
)

if TYPE_CHECKING:
    from acme import specs

__all__ = [
    "EdgeEnvironment",
    "EpisodeFailed",
    "OutOfSpec",
    "UnknownEnvironment",
    "UnsupportedEnvironment",
    "action_kind",
    "environment_spec",
    "make_environment",
]

KINDS = ("dm_control", "gym", "atari", "envpool_dm")


def make_environment(
    name: str,
    *,
    seed: int,
    action_limit: float | None = None,
    sticky_actions: float = 0.0,
) -> EdgeEnvironment:
    """Returns the environment called `name`.

    Args:
      name: see the package docstring.
      seed: the same seed and actions give the same time steps.
      action_limit: bound for continuous actions that have none; None refuses them.
      sticky_actions: Atari only: probability of repeating the previous action.

    Raises:
      UnknownEnvironment: if the name means nothing to us.
      UnsupportedEnvironment: if it cannot be made, naming the cause or the field.
      ValueError: if an option is out of range or means nothing to this environment.
    """
    if action_limit is not None and not 0.0 < action_limit < float("inf"):
        raise ValueError(f"action_limit must be positive, got {action_limit}.")
    if not 0.0 <= sticky_actions < 1.0:
        raise ValueError(f"sticky_actions must lie in [0, 1), got {sticky_actions}.")
    if sticky_actions and not name.startswith("atari:"):
        raise ValueError(f"sticky_actions is for atari: environments, got {name}.")
    environment = _make(name, seed, sticky_actions)
    try:
        return EdgeEnvironment(environment, action_limit=action_limit)
    except UnsupportedEnvironment as error:
        environment.close()
        raise UnsupportedEnvironment(f"{name}: {error}") from None


def _make(name: str, seed: int, sticky_actions: float) -> dm_env.Environment:
    """Imports what makes the kind that `name` starts with, and calls it."""
    kind, _, rest = name.partition(":")
    if kind in KINDS:
        options = (sticky_actions,) if kind == "atari" else ()
        try:
            return _maker(kind).make(rest, seed, *options)
        except ImportError as error:  # Some import their library when they need it.
            raise UnsupportedEnvironment(
                f"{kind} environments cannot be imported: {in_one_line(error)}"
            ) from error
    if factory.exists(name):
        return factory.make(name, seed)
    known = [known for kind in KINDS for known in _maker(kind).names()]
    raise UnknownEnvironment(
        f"unknown environment {name!r}: expected dm_control:domain:task, gym:ID, "
        "atari:Game, envpool_dm:ID or module.path:factory"
        f"{nearest.suggest(name, known)}."
    )


def _maker(kind: str) -> ModuleType:
    """Imports the module that makes environments of one of the KINDS.

    Raises:
      UnsupportedEnvironment: if the library behind it is not installed.
    """
    try:
        return importlib.import_module(f"{__name__}.{kind}")
    except ModuleNotFoundError as error:
        raise UnsupportedEnvironment(
            f"{kind} environments need the package {error.name}, "
            "which is not installed."
        ) from error


def environment_spec(name: str, **options: Any) -> specs.EnvironmentSpec:
    """Returns the `acme.specs.EnvironmentSpec` of the environment called `name`.

    Args:
      name: see `make_environment`.
      **options: its options; the seed changes nothing here and may be left out.

    Raises:
      UnknownEnvironment, UnsupportedEnvironment, ValueError: as `make_environment`.
    """
    from acme import specs

    environment = make_environment(name, **{"seed": 0, **options})
    try:
        return specs.make_environment_spec(environment)
    finally:
        environment.close()
