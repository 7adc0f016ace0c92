"""The one loop that refuses settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from acme_quant.settings.declaration import FLOAT32_MAX, Rule, Value, rule_of, text_of

NOBODY: Mapping[str, str] = {}


def check(config: Any, absent: Mapping[str, str] = NOBODY) -> None:
    """Refuses what is out of bounds, and what would change nothing.

    Args:
      config: a dataclass whose fields `setting` declared.
      absent: whom the run does not have -> the flag that says so, and why.

    Raises:
      ValueError: with one sentence on the first setting that is refused.
    """
    for field in dataclasses.fields(config):
        rule, value = rule_of(field), getattr(config, field.name)
        if rule.refuses(value):
            raise ValueError(_out_of_bounds(field.name, rule, value))
    for field in dataclasses.fields(config):
        if _changed(config, field.name):
            _check_company(config, field, absent)


def names(config_class: type, serves: str) -> list[str]:
    """Returns the settings that serve somebody."""
    fields = dataclasses.fields(config_class)
    return [field.name for field in fields if serves in rule_of(field).serves]


def _out_of_bounds(name: str, rule: Rule, value: Value) -> str:
    parts = value if isinstance(value, tuple) else (value,)
    if len(parts) < rule.fewest:
        return f"expected --{name} with {rule.fewest} element at least, got none."
    part = next(part for part in parts if rule.refuses(part))
    finite = not isinstance(part, float) or abs(part) <= FLOAT32_MAX
    words = f"--{name} {rule.wanted}".strip()
    article = "" if finite and rule.wanted else "a finite "
    return f"expected {article}{words}, got {part!r}."


def _check_company(
    config: Any, field: dataclasses.Field, absent: Mapping[str, str]
) -> None:
    rule, value = rule_of(field), getattr(config, field.name)
    for whom in rule.serves:
        if whom in absent:
            raise ValueError(
                f"--{field.name}={text_of(value)} would change nothing with "
                f"{absent[whom]}."
            )
    other = rule.instead_of
    if other and _changed(config, other):
        raise ValueError(
            f"expected --{other} or --{field.name}, got both: "
            f"{text_of(getattr(config, other))} and {text_of(value)}."
        )


def _changed(config: Any, name: str) -> bool:
    default = {field.name: field.default for field in dataclasses.fields(config)}
    return getattr(config, name) != default[name]
