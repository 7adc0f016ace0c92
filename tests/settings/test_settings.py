"""A setting knows its bounds, choices and whom it serves; one loop refuses the rest."""

from __future__ import annotations

import dataclasses
import math

import pytest

from acme_quant import agents
from acme_quant.launch.settings.config import RunConfig
from acme_quant.settings import flags, refusals
from acme_quant.settings.declaration import rule_of, setting

CONFIGS = (RunConfig, *(agents.get(name).Config for name in agents.AGENTS))


@dataclasses.dataclass(frozen=True)
class Config:
    """Some settings."""

    steps: int = setting(5, "Steps.", at_least=1)
    rate: float = setting(0.1, "Rate.", above=0, at_most=1)
    layers: tuple[int, ...] = setting((8, 8), "Layers.", at_least=1, fewest=1)
    kind: str = setting("a", "Kind.", choices=("a", "b"), serves="engine")
    rate_s: float = setting(0.0, "Rate in seconds.", instead_of="rate")
    level: float | None = setting(None, "Level.")


@pytest.mark.parametrize(
    "given,sentence",
    [
        (dict(steps=0), "expected --steps of at least 1, got 0."),
        (dict(steps=2**63), f"expected --steps of at least 1, got {2**63}."),
        (dict(rate=0.0), "expected --rate above 0 and at most 1, got 0.0."),
        (dict(rate=1.5), "expected --rate above 0 and at most 1, got 1.5."),
        (
            dict(rate=math.nan),
            "expected a finite --rate above 0 and at most 1, got nan.",
        ),
        (dict(rate_s=1e39), "expected a finite --rate_s, got 1e+39."),
        (dict(level=-math.inf), "expected a finite --level, got -inf."),
        (dict(layers=(8, 0)), "expected --layers of at least 1, got 0."),
        (dict(layers=()), "expected --layers with 1 element at least, got none."),
        (dict(kind="c"), "expected --kind out of a, b, got 'c'."),
        (dict(kind="b"), "--kind=b would change nothing with --actor=acme."),
        (
            dict(rate=0.5, rate_s=2.0),
            "expected --rate or --rate_s, got both: 0.5 and 2.0.",
        ),
    ],
)
def test_a_setting_is_refused_in_one_sentence(given: dict, sentence: str) -> None:
    with pytest.raises(ValueError) as error:
        refusals.check(Config(**given), {"engine": "--actor=acme"})
    assert str(error.value) == sentence


def test_settings_that_are_allowed_pass() -> None:
    refusals.check(Config(), {"engine": "--actor=acme"})
    refusals.check(Config(kind="b", layers=(1,), rate=1.0))


def test_flags_are_read_as_they_were_declared() -> None:
    argv = ["x", "--layers=3,4", "--rate=0.5", "--kind=b", "--level=2"]
    assert flags.parse(argv, Config) == Config(3 + 2, 0.5, (3, 4), "b", 0.0, 2.0)
    assert "[at least 1]" in flags.parse(["x", "--help"], Config)


@pytest.mark.parametrize("argument", ["--layers=a", "--rate=x", "--what=1", "rest"])
def test_a_malformed_command_line_is_one_sentence(argument: str) -> None:
    with pytest.raises(ValueError) as error:
        flags.parse(["x", argument], Config)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("config_class", CONFIGS)
def test_every_default_is_allowed_and_every_number_of_an_agent_has_a_bound(
    config_class: type,
) -> None:
    refusals.check(config_class())
    for field in dataclasses.fields(config_class):
        number = isinstance(field.default, (int, float, tuple))
        if number and not isinstance(field.default, bool):
            assert rule_of(field).wanted, field.name


@pytest.mark.parametrize("config_class", CONFIGS)
def test_no_number_of_a_run_may_be_nan_or_infinite(config_class: type) -> None:
    for field in dataclasses.fields(config_class):
        for value in (math.nan, math.inf, -math.inf):
            if isinstance(field.default, float):
                with pytest.raises(ValueError, match=f"a finite --{field.name}"):
                    refusals.check(config_class(**{field.name: value}))


def test_what_a_setting_takes_the_place_of_exists() -> None:
    for config_class in CONFIGS:
        names = {field.name for field in dataclasses.fields(config_class)}
        for field in dataclasses.fields(config_class):
            assert rule_of(field).instead_of in names | {""}
