"""An environment's specs, read by a process that makes it and closes it again.

That process imports neither TensorFlow nor Launchpad, and may run beside our imports.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any

from acme_quant import environments
from acme_quant.launch.settings.user_process import Failed, Send, UserProcess, serve

if TYPE_CHECKING:
    from acme import specs

# Large simulators take a minute to start.
MAKE_S = 180.0


class SpecChild(UserProcess):
    """A process that reads the specs of one environment."""

    def __init__(self, name: str, options: dict[str, Any]) -> None:
        """Starts it; arguments as of `environments.environment_spec`."""
        super().__init__(__name__, {"name": name, "options": options})
        self._name = name

    def spec(self, timeout_s: float = MAKE_S) -> specs.EnvironmentSpec:
        """Returns the specs.

        Raises:
          ValueError: with one sentence if there are none, for whatever reason.
        """
        from acme import specs

        try:
            return specs.EnvironmentSpec(*self.answer(timeout_s))
        except Failed as error:
            raise ValueError(f"{self._name} cannot be made: {error}.") from error


def read_spec(name: str, options: dict[str, Any]) -> specs.EnvironmentSpec:
    """Returns the specs of an environment, made once for each name and folder.

    Raises:
      ValueError: with one sentence if there are none, for whatever reason.
    """
    return _read_spec(name, tuple(sorted(options.items())), os.getcwd())


@functools.lru_cache
def _read_spec(
    name: str, options: tuple[tuple[str, Any], ...], folder: str
) -> specs.EnvironmentSpec:
    del folder
    with SpecChild(name, dict(options)) as child:
        return child.spec()


def main() -> None:
    """Sends the specs, then closes the environment."""

    def work(request: dict[str, Any], send: Send) -> None:
        options = {"seed": 0, **request["options"]}
        environment = environments.make_environment(request["name"], **options)
        # In the order of acme.specs.EnvironmentSpec: Acme imports Launchpad.
        send(
            (
                environment.observation_spec(),
                environment.action_spec(),
                environment.reward_spec(),
                environment.discount_spec(),
            )
        )
        environment.close()

    serve(work)
