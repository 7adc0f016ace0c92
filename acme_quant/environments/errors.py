"""What can be wrong with an environment, one type a kind.

The first two are met before a run starts, the third ends a run, the fourth ends one
episode: the loop counts it and goes on.
"""

from __future__ import annotations

# Episodes that may fail one after the other before a run is given up.
MAX_FAILURES_IN_A_ROW = 10


class UnknownEnvironment(ValueError):
    """The name given is no environment that we can make."""


class UnsupportedEnvironment(ValueError):
    """The environment exists, but cannot be made or has a space we cannot serve."""


class OutOfSpec(ValueError):
    """The environment returned something that its own spec does not allow."""


class EpisodeFailed(RuntimeError):
    """The episode cannot go on (diverged physics, NaN); a reset starts another one."""


def in_one_line(error: BaseException) -> str:
    """Returns an error's type and words in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
