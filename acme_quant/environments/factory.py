"""`module.path:factory`: a person's own dm_env or gymnasium environment."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from typing import Any, Callable

import dm_env

from acme_quant.environments import nearest
from acme_quant.environments.errors import (
    UnknownEnvironment,
    UnsupportedEnvironment,
    in_one_line,
)


def make(name: str, seed: int) -> dm_env.Environment:
    """Returns what `module.path:factory` makes.

    The factory is called with `seed=` if it takes such a parameter, without arguments
    otherwise. Modules of the current folder are found.

    Raises:
      UnknownEnvironment: if there is no such module or factory.
      UnsupportedEnvironment: if importing or calling it fails, or if it returns
        something else than an environment.
    """
    factory = _find(name)
    try:
        environment = factory(seed=seed) if _takes_seed(factory) else factory()
    except (Exception, SystemExit) as error:  # Its exit code may be 0.
        raise UnsupportedEnvironment(f"{name} failed: {in_one_line(error)}") from error
    if isinstance(environment, dm_env.Environment):
        return environment
    gymnasium = sys.modules.get("gymnasium")
    if gymnasium and isinstance(environment, gymnasium.Env):
        from acme_quant.environments import gym

        return gym.adapt(environment, name, seed)
    raise UnsupportedEnvironment(
        f"{name} must return a dm_env.Environment or a gymnasium.Env, "
        f"got {type(environment).__name__}."
    )


def exists(name: str) -> bool:
    """Returns whether the module of `module.path:factory` can be found."""
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        return False
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # A console script does not look there.
    try:
        return importlib.util.find_spec(module_name) is not None
    except (ImportError, ValueError):
        return False


def _find(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    try:
        module = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise UnsupportedEnvironment(
            f"{name}: importing {module_name} failed: {in_one_line(error)}"
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise UnknownEnvironment(
            f"{module_name} has no factory {attribute!r}: expected a callable that "
            f"returns an environment{nearest.suggest(attribute, vars(module))}."
        )
    return factory


def _takes_seed(factory: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # Some built-in callables have no signature.
        return False
    return "seed" in parameters
