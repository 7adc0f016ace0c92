"""Command lines that contain the flags of `acme-quant train` and a few of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from absl import flags

from acme_quant.launch import config as run_config
from acme_quant.launch.config import UsageError


def parse(
    argv: Sequence[str], define: Callable[[flags.FlagValues], None]
) -> flags.FlagValues | None:
    """Returns the parsed flags; None when only the help was asked for, and printed.

    Args:
      argv: program name and flags.
      define: defines the command's own flags.

    Raises:
      UsageError: for an unknown flag, a malformed value or a left-over argument.
    """
    values = flags.FlagValues()
    define(values)
    run_config.define_flags(values)
    if any(argument in ("--help", "-help", "-h") for argument in argv[1:]):
        print(values.get_help())
        return None
    try:
        rest = values(list(argv))[1:]
    except flags.Error as error:
        raise UsageError(str(error)) from error
    if rest:
        raise UsageError(f"expected flags only, got {rest[0]!r}.")
    return values


def refuse(values: flags.FlagValues, names: Iterable[str], why: str) -> None:
    """Raises UsageError if one of these flags was given."""
    for name in names:
        if name in values and values[name].present:
            raise UsageError(f"--{name} would change nothing: {why}.")


def of_train(values: flags.FlagValues, without: Iterable[str] = ()) -> list[str]:
    """Returns the flags of `train` that were given, as they would be written."""
    trains = flags.FlagValues()
    run_config.define_flags(trains)
    left_out = {"workdir", *without}
    names = [n for n in trains if n not in left_out and values[n].present]
    return [values[name].serialize() for name in names]
