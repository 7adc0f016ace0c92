"""Where a person's modules are looked for, and what it means when one is not found."""

from __future__ import annotations

import os
import sys

# The folder of the start: a constructor may change to another one.
_FOLDER = os.getcwd()


def look_here_first() -> None:
    """Has modules of this folder found, before what is installed.

    A console script does not look there at all.
    """
    if _FOLDER in sys.path:
        sys.path.remove(_FOLDER)
    sys.path.insert(0, _FOLDER)


def is_missing(error: BaseException, module_name: str) -> bool:
    """Returns whether `error` says that `module_name` itself, or its package, is not.

    A module that is there, and imports one that is not, raises the same type.
    """
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return False
    return f"{module_name}.".startswith(f"{error.name}.")
