"""A setting's one declaration: default, help, bounds, choices, whom it serves.

    n_step: int = setting(5, "Steps folded into one transition.", at_least=1)

Flags, the resolved `config.json`, the tables of the docs and every refusal are made
from these fields of a dataclass, so that a new setting is one line and its use.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Union

Number = Union[int, float]
Value = Union[bool, int, float, str, None, "tuple[Value, ...]"]

# Beyond it a number is infinite in float32, which is what networks and replay hold.
FLOAT32_MAX = (2 - 2.0**-23) * 2.0**127
INT64_MAX = 2**63 - 1


@dataclasses.dataclass(frozen=True)
class Rule:
    """What a setting may be, and when it means anything.

    Attributes:
      help: one sentence, for `--help` and the docs.
      at_least, above, at_most, below: bounds, of each element of a tuple.
      choices: the only values, or elements, when there are any.
      fewest: elements that a tuple must have.
      serves: whom it means something to; it changes nothing for a run that has none.
      instead_of: the setting that it takes the place of.
    """

    help: str
    at_least: Number | None = None
    above: Number | None = None
    at_most: Number | None = None
    below: Number | None = None
    choices: tuple[str, ...] = ()
    fewest: int = 0
    serves: tuple[str, ...] = ()
    instead_of: str = ""

    @property
    def wanted(self) -> str:
        """The words for what is allowed, empty when everything is."""
        if self.choices:
            return "out of " + ", ".join(choice or "''" for choice in self.choices)
        bounds = {
            "of at least": self.at_least,
            "above": self.above,
            "at most": self.at_most,
            "below": self.below,
        }
        words = [f"{w} {n}" for w, n in bounds.items() if n is not None]
        return " and ".join(words)

    def refuses(self, value: Value) -> bool:
        """Returns whether a value is out of bounds, not finite or no choice."""
        if isinstance(value, tuple):
            return len(value) < self.fewest or any(map(self.refuses, value))
        if self.choices:
            return value not in self.choices
        if not isinstance(value, (int, float)):
            return False
        largest = FLOAT32_MAX if isinstance(value, float) else INT64_MAX
        return not (abs(value) <= largest and self._within(value))

    def _within(self, value: Number) -> bool:
        """Returns whether a number respects all bounds; NaN respects none."""
        low = -math.inf if self.at_least is None else self.at_least
        high = math.inf if self.at_most is None else self.at_most
        above = self.above is None or value > self.above
        return (
            low <= value <= high
            and above
            and (self.below is None or value < self.below)
        )


def setting(default: Value, text: str, **rule: Any) -> Any:
    """Declares a dataclass field: its default, its help, and a `Rule`'s other fields.

    `serves` may be one name.
    """
    if isinstance(rule.get("serves"), str):
        rule["serves"] = (rule["serves"],)
    metadata = {"help": text, "rule": Rule(text, **rule)}
    return dataclasses.field(default=default, metadata=metadata)


def rule_of(field: dataclasses.Field) -> Rule:
    """Returns the rule of a field that `setting` declared."""
    return field.metadata["rule"]


def text_of(value: Value) -> str:
    """Returns a value as it is written on the command line."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
