"""`dm_control:domain:task`: the DeepMind Control Suite, state observations."""

from __future__ import annotations

import contextlib
import os
import sys
from types import ModuleType
from typing import Any, Iterator

import dm_env
import numpy as np

from acme_quant.environments import nearest
from acme_quant.environments.actions import UNBOUNDED
from acme_quant.environments.errors import UnknownEnvironment


def make(name: str, seed: int, drawn: bool = False) -> dm_env.Environment:
    """Returns the suite's environment `domain:task`, its random state from `seed`.

    One that is to be drawn needs an OpenGL, and the suite imported with it.

    Raises:
      UnknownEnvironment: naming the nearest tasks.
    """
    suite = _import_suite()
    domain, _, task = name.partition(":")
    if (domain, task) not in suite.ALL_TASKS:
        raise UnknownEnvironment(
            f"dm_control has no task {name!r}: expected dm_control:domain:task"
            f"{nearest.suggest('dm_control:' + name, names())}."
        )
    random = np.random.RandomState(seed % 2**32)
    environment = suite.load(domain, task, task_kwargs={"random": random})
    if not drawn:
        _forgo_rendering(environment.physics)
    spec = environment.action_spec()
    if (np.abs(spec.maximum) >= UNBOUNDED).any():
        # Domain lqr: scaling to +-1e10 would blow up its physics at the first step,
        # so its actuators get the interval of all the other domains.
        bounded = spec.replace(minimum=-1.0, maximum=1.0)
        environment.action_spec = lambda: bounded
    return environment


def _forgo_rendering(physics: Any) -> None:
    """Says that there is nothing to draw to.

    quadruped:escape sends each episode's terrain to the graphics card if it finds one,
    and opens an OpenGL context to look.
    """
    physics.__class__ = type("StateOnly", (type(physics),), {"contexts": None})


def names() -> list[str]:
    """Returns the names of all tasks of the suite."""
    return [f"dm_control:{domain}:{task}" for domain, task in _import_suite().ALL_TASKS]


def _import_suite() -> ModuleType:
    """Imports the suite without its OpenGL: state-only training must never touch it.

    dm_control looks for a display at import, warns without one, and refuses a
    MUJOCO_GL that it does not know.
    """
    if "dm_control.suite" in sys.modules:
        return sys.modules["dm_control.suite"]
    with _variable("MUJOCO_GL", "disable"):
        from dm_control import suite
    return suite


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """Sets an environment variable for a while."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
