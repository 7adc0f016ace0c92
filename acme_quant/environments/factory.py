"""`module.path:factory`: a person's own dm_env or gymnasium environment."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from types import ModuleType
from typing import Any, Callable

import dm_env

from acme_quant.environments import modules, nearest
from acme_quant.environments.errors import (
    UnknownEnvironment,
    UnsupportedEnvironment,
    in_one_line,
)


def make(name: str, seed: int) -> dm_env.Environment:
    """Returns what `module.path:factory` makes.

    The factory is called with `seed=` if it takes such a parameter, without arguments
    otherwise. Modules of the folder in which this process started come first.

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
    """Returns whether the module of `module.path:factory` can be found.

    Raises:
      UnsupportedEnvironment: if a package around it is there but cannot be imported.
    """
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        return False
    modules.look_here_first()
    try:
        return importlib.util.find_spec(module_name) is not None
    except (Exception, SystemExit) as error:
        if isinstance(error, ValueError) or modules.is_missing(error, module_name):
            return False
        raise UnsupportedEnvironment(
            f"{name}: importing {_package(module_name)} failed: {in_one_line(error)}"
        ) from error


def _package(module_name: str) -> str:
    """Returns the outermost package of a module with the file that it is in."""
    package = module_name.partition(".")[0]
    spec = importlib.util.find_spec(package)
    return f"{package} ({spec.origin})" if spec and spec.origin else package


def _find(name: str) -> Callable[..., Any]:
    module_name, _, attribute = name.partition(":")
    module = _import(name, module_name)
    factory = getattr(module, attribute, None)
    if not callable(factory):
        file = getattr(module, "__file__", None) or "no file"
        near = nearest.suggest(attribute, vars(module))
        raise UnknownEnvironment(
            f"{module_name} has no factory {attribute!r} in {file}: expected a "
            f"callable that returns an environment{near}."
        )
    return factory


def _import(name: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        spec = importlib.util.find_spec(module_name)
        file = spec.origin if spec else "no file"
        raise UnsupportedEnvironment(
            f"{name}: importing {module_name} ({file}) failed: {in_one_line(error)}"
        ) from error


def _takes_seed(factory: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # Some built-in callables have no signature.
        return False
    return "seed" in parameters
