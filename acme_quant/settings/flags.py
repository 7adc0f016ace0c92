"""Command-line flags made from declared settings, and settings read from them."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Sequence
from typing import TypeVar, Union

from absl import flags

from acme_quant.settings import refusals
from acme_quant.settings.declaration import Value, rule_of, text_of

Config = TypeVar("Config")
_DEFINE = {
    bool: flags.DEFINE_boolean,
    int: flags.DEFINE_integer,
    float: flags.DEFINE_float,
    str: flags.DEFINE_string,
}


def define(values: flags.FlagValues, config_class: type, owner: str = "") -> None:
    """Defines a flag for each setting.

    Args:
      values: gets the flags.
      config_class: a dataclass whose fields `setting` declared.
      owner: who has these settings, when others have some of the same name: the
        flag's default is None then, for "the owner's own".
    """
    hints = typing.get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        if field.name in values and owner:
            continue
        text = _help(field)
        if owner:
            text = f"{text} ({owner}: {text_of(field.default)})"
        default = None if owner else _default(field)
        define_one = flags.DEFINE_list if _element(hints[field.name]) else None
        define_one = define_one or _DEFINE[_plain(hints[field.name])]
        define_one(field.name, default, text, flag_values=values)


def read(values: flags.FlagValues, config_class: type[Config]) -> Config:
    """Returns the settings that the parsed flags describe; None keeps a default.

    Raises:
      ValueError: if an element of a list has the wrong type.
    """
    hints = typing.get_type_hints(config_class)
    given = {
        field.name: _value(field.name, values[field.name].value, hints[field.name])
        for field in dataclasses.fields(config_class)
        if values[field.name].value is not None
    }
    return config_class(**given)


def parse(argv: Sequence[str], config_class: type[Config]) -> Config | str:
    """Returns the settings of a command with flags of its own; for --help, the help.

    Raises:
      ValueError: with one sentence on what is wrong with the command line.
    """
    values = flags.FlagValues()
    define(values, config_class)
    if asks_for_help(argv):
        return values.get_help()
    parse_all(argv, values)
    config = read(values, config_class)
    refusals.check(config)
    return config


def parse_all(argv: Sequence[str], values: flags.FlagValues) -> None:
    """Gives the flags their values.

    Raises:
      ValueError: for an unknown flag, a malformed value or a left-over argument.
    """
    try:
        rest = values(list(argv))[1:]
    except flags.Error as error:
        raise ValueError(" ".join(str(error).split())) from error
    if rest:
        raise ValueError(f"expected flags only, got {rest[0]!r}.")


def asks_for_help(argv: Sequence[str]) -> bool:
    """Returns whether the help is asked for."""
    return any(argument in ("--help", "-help", "-h") for argument in argv[1:])


def _help(field: dataclasses.Field) -> str:
    rule = rule_of(field)
    bounds = "" if rule.choices else rule.wanted
    return f"{rule.help} [{bounds.removeprefix('of ')}]" if bounds else rule.help


def _default(field: dataclasses.Field) -> Value:
    default = field.default
    return list(map(str, default)) if isinstance(default, tuple) else default


def _element(kind: type) -> type | None:
    """Returns the type of a tuple's elements, None for what is no tuple."""
    return typing.get_args(kind)[0] if typing.get_origin(kind) is tuple else None


def _plain(kind: type) -> type:
    """Returns the type without `| None`."""
    if typing.get_origin(kind) in (Union, types.UnionType):
        return next(a for a in typing.get_args(kind) if a is not type(None))
    return kind


def _value(name: str, value: object, kind: type) -> Value:
    """Converts a list flag to the tuple of the field's element type."""
    element = _element(kind)
    if element is None:
        return value
    try:
        return tuple(element(item) for item in value)
    except ValueError as error:
        kinds = {int: "whole numbers", float: "numbers"}
        raise ValueError(
            f"expected --{name} as a list of {kinds[element]}, got {','.join(value)!r}."
        ) from error
