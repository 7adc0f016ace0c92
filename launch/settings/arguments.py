"""Command lines that contain the flags of `acme-quant train`: parsed in one way.

`--preset=NAME` stands for the flags of a preset; those given beside it override them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from absl import flags

from acme_quant.agents import presets
from acme_quant.launch.settings import config
from acme_quant.launch.settings.config import UsageError
from acme_quant.settings import flags as setting_flags
from acme_quant.settings import refusals

Own = TypeVar("Own")


class HelpRequested(Exception):
    """The flags' help was asked for; the message is the help."""


def flags_of(argv: Sequence[str], own: type[Own]) -> tuple[flags.FlagValues, Own]:
    """Returns the parsed flags, and the command's own settings among them.

    Args:
      argv: program name and flags.
      own: the command's own settings.

    Raises:
      UsageError: for an unknown flag, a malformed value or a left-over argument.
      HelpRequested: for --help.
    """
    values = flags.FlagValues()
    setting_flags.define(values, own)
    config.define_flags(values)
    flags.DEFINE_string(
        "preset", None, "Flags of a preset, such as dqn_cartpole.", flag_values=values
    )
    if setting_flags.asks_for_help(argv):
        raise HelpRequested(values.get_help())
    expanded = with_preset(argv)
    try:
        setting_flags.parse_all(expanded, values)
        settings = setting_flags.read(values, own)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if values.preset and len(expanded) == len(argv):
        raise UsageError("expected --preset on the command line, got it in a flagfile.")
    refuse_settings(settings)
    return values, settings


def refuse_settings(
    settings: object, absent: Mapping[str, str] = refusals.NOBODY
) -> None:
    """Refuses what is out of bounds, or changes nothing; see `refusals.check`.

    Raises:
      UsageError: with one sentence on the first setting that is refused.
    """
    try:
        refusals.check(settings, absent)
    except ValueError as error:
        raise UsageError(str(error)) from error


def with_preset(argv: Sequence[str]) -> list[str]:
    """Returns the command line with the flags of its preset before its own.

    Raises:
      UsageError: if there is no such preset.
    """
    name = preset_of(argv)
    if not name:
        return list(argv)
    try:
        preset = presets.flags(name)
    except ValueError as error:
        raise UsageError(str(error)) from error
    return [argv[0], *preset, *argv[1:]]


def preset_of(argv: Sequence[str]) -> str:
    """Returns the name of the command line's preset, empty without one."""
    given = [arg for arg in argv[1:] if arg.lstrip("-").startswith("preset=")]
    return given[-1].split("=", 1)[1] if given else ""


def refuse(
    argv: Sequence[str], values: flags.FlagValues, names: Iterable[str], why: str
) -> None:
    """Refuses flags that were given, but not those that only a preset brought.

    Args:
      argv: the command line.
      values: its parsed flags.
      names: flags that the command sets itself.
      why: what it does with them.

    Raises:
      UsageError: if one of them was given.
    """
    preset = presets.flags(values.preset) if values.preset else []
    brought = {_name(flag) for flag in preset} - {_name(flag) for flag in argv[1:]}
    for name in names:
        if name in values and values[name].present and name not in brought:
            raise UsageError(f"--{name} would change nothing: {why}.")


def _name(flag: str) -> str:
    return flag.lstrip("-").split("=", 1)[0]


def of_train(values: flags.FlagValues, without: Iterable[str] = ()) -> list[str]:
    """Returns the flags of `train` that were given, as they would be written.

    A preset's flags are among them, the preset itself is not.
    """
    trains = flags.FlagValues()
    config.define_flags(trains)
    left_out = {"workdir", *without}
    names = [n for n in trains if n not in left_out and values[n].present]
    return [values[name].serialize() for name in names]
