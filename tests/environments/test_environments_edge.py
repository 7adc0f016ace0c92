"""The edge: casts, bounds and checks, on small environments written here."""

from __future__ import annotations

import collections
import subprocess
import sys
from typing import Any

import dm_env
import gymnasium
import numpy as np
import pytest
from dm_env import specs
from gymnasium import spaces

from acme_quant.environments import (
    EdgeEnvironment,
    EpisodeFailed,
    OutOfSpec,
    UnsupportedEnvironment,
    action_kind,
)
from acme_quant.environments.actions import adapt
from acme_quant.environments.gym import GymEnvironment
from acme_quant.environments.observations import make_reader


class Scripted(dm_env.Environment):
    """Returns the observation, reward and discount that it is told to."""

    def __init__(self, observation: Any, spec: Any, actions: Any = None) -> None:
        self.observation, self._spec = observation, spec
        self._actions = actions or specs.DiscreteArray(2)
        self.reward, self.discount = 1.0, 1.0

    def reset(self) -> dm_env.TimeStep:
        return dm_env.restart(self.observation)

    def step(self, action: Any) -> dm_env.TimeStep:
        self.action = action
        return dm_env.transition(self.reward, self.observation, self.discount)

    def observation_spec(self) -> Any:
        return self._spec

    def action_spec(self) -> Any:
        return self._actions


def scalar(dtype: Any = np.float64) -> specs.Array:
    return specs.Array((), dtype)


def edge(environment: Scripted) -> EdgeEnvironment:
    wrapped = EdgeEnvironment(environment)
    wrapped.reset()
    return wrapped


def test_mixed_dtypes_of_a_nest_are_cast_once() -> None:
    spec = collections.OrderedDict(
        z=(scalar(np.int64), specs.Array((2,), np.float64)),
        a=specs.Array((2, 2), np.uint8),
        m={"flag": scalar(bool), "half": specs.Array((1,), np.float16)},
    )
    value = dict(
        a=np.full((2, 2), 255, np.uint8),
        m={"half": np.ones(1, np.float16), "flag": True},
        z=[7, [0.1, 0.2]],
    )
    read_spec, read = make_reader(spec)
    observation = read(value)
    assert list(observation) == list(read_spec) == ["a", "m", "z"]
    assert observation["a"].dtype == read_spec["a"].dtype == np.uint8
    assert observation["m"]["flag"].dtype == np.float32
    number, row = observation["z"]
    assert (number.dtype, number.shape, float(number)) == (np.float32, (), 7.0)
    assert np.array_equal(row, np.float32([0.1, 0.2]))


def test_what_is_read_does_not_change_with_the_environments_array() -> None:
    buffer = np.zeros(3, np.float32)
    _, read = make_reader(specs.Array((3,), np.float32))
    observation = read(buffer)
    buffer[:] = 1
    assert not observation.any()


@pytest.mark.parametrize(
    "spec, value, words",
    [
        (specs.Array((3,), float), np.zeros(4), "must have shape (3,), got (4,)"),
        (specs.Array((3,), float), None, "must have shape (3,), got ()"),
        (specs.Array((2,), int), np.zeros(2), "must be int64, got float64"),
        (specs.Array((2,), np.uint8), np.zeros(2, int), "must be uint8, got int64"),
        (scalar(), "text", "must be float64, got <U4"),
        (scalar(), 1j, "must be float64, got complex128"),
        ({"a": scalar()}, {"b": 0.0}, "must have the fields ['a'], got ['b']"),
        ({"a": scalar()}, 0.0, "must have the fields ['a'], got float"),
        ((scalar(),), (0.0, 0.0), "must have 1 parts, got 2"),
    ],
)
def test_an_observation_out_of_its_spec_is_named(
    spec: Any, value: Any, words: str
) -> None:
    _, read = make_reader({"field": spec})
    with pytest.raises(OutOfSpec) as caught:
        read({"field": value})
    assert str(caught.value) == f"observation.field {words}."


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300])
def test_an_observation_that_is_not_finite_in_float32_fails_the_episode(
    bad: float,
) -> None:
    environment = Scripted(np.zeros((2, 2)), specs.Array((2, 2), float))
    wrapped = edge(environment)
    environment.observation = np.array([[0.0, 1.0], [bad, 0.0]])
    with pytest.raises(EpisodeFailed, match="observation is not finite"):
        wrapped.step(0)
    environment.observation = np.zeros((2, 2))
    assert wrapped.step(0).first()


def test_large_finite_observations_pass() -> None:
    _, read = make_reader(specs.Array((3,), np.float32))
    assert np.isfinite(read(np.full(3, 3e38, np.float32))).all()


@pytest.mark.parametrize(
    "reward", [1, 1.0, np.float64(1), np.ones(1), np.ones((1, 1)), np.array(1), True]
)
def test_a_reward_in_any_dress_becomes_one_float32(reward: Any) -> None:
    environment = Scripted(0.0, scalar())
    wrapped = edge(environment)
    environment.reward = reward
    timestep = wrapped.step(0)
    assert type(timestep.reward) is np.float32 and timestep.reward == 1.0


@pytest.mark.parametrize("reward", [np.ones(2), None, "much"])
def test_a_reward_that_is_no_number_is_an_error(reward: Any) -> None:
    environment = Scripted(0.0, scalar())
    wrapped = edge(environment)
    environment.reward = reward
    with pytest.raises(OutOfSpec, match="reward must be one number"):
        wrapped.step(0)


def test_a_nan_reward_fails_the_episode() -> None:
    environment = Scripted(0.0, scalar())
    wrapped = edge(environment)
    environment.reward = float("nan")
    with pytest.raises(EpisodeFailed, match="reward is nan"):
        wrapped.step(0)


@pytest.mark.parametrize("discount", [1.5, -0.1, float("nan")])
def test_a_discount_outside_the_unit_interval_is_an_error(discount: float) -> None:
    environment = Scripted(0.0, scalar())
    wrapped = edge(environment)
    environment.discount = discount
    with pytest.raises(OutOfSpec, match=r"discount must lie in \[0, 1\]"):
        wrapped.step(0)


def test_uneven_bounds_are_reached_exactly_and_never_left() -> None:
    low, high = np.float32([0, -1, 5]), np.float32([1, 1, 1000])
    actions = adapt(specs.BoundedArray((3,), np.float32, low, high), None)
    assert np.array_equal(actions.write(np.float32([-1, -1, -1])), low)
    assert np.array_equal(actions.write(np.float32([1, 1, 1])), high)
    assert np.array_equal(actions.write(np.zeros(3)), np.float32([0.5, 0, 502.5]))
    rng = np.random.default_rng(0)
    for _ in range(200):
        action = actions.write(rng.normal(0, 2, 3).astype(np.float32))
        assert (action >= low).all() and (action <= high).all()


def test_an_action_box_of_any_shape_is_one_row_outside() -> None:
    actions = adapt(specs.BoundedArray((2, 2), np.float64, -3.0, 3.0), None)
    assert actions.spec.shape == (4,)
    assert np.array_equal(
        actions.write(np.float32([0, 1, -1, 0.5])), [[0, 3], [-3, 1.5]]
    )


def test_infinite_bounds_are_refused_or_limited() -> None:
    spec = specs.BoundedArray((2,), np.float32, [-np.inf, 0.0], [np.inf, 1.0])
    with pytest.raises(UnsupportedEnvironment, match="infinite bounds"):
        adapt(spec, None)
    actions = adapt(spec, 4.0)
    assert np.array_equal(actions.write(np.ones(2)), np.float32([4.0, 1.0]))
    with pytest.raises(UnsupportedEnvironment, match="infinite bounds"):
        adapt(specs.Array((2,), np.float32), None)


@pytest.mark.parametrize(
    "spec",
    [
        {"a": specs.DiscreteArray(2)},
        specs.BoundedArray((2,), np.int32, 0, 3),
        specs.BoundedArray((2,), np.float32, [0, 1], [1, 1]),
        specs.StringArray(()),
        specs.Array((), np.int32),
    ],
)
def test_actions_that_we_cannot_serve_are_refused(spec: Any) -> None:
    with pytest.raises(UnsupportedEnvironment, match="^action "):
        adapt(spec, None)


def test_indices_start_at_zero_whatever_the_environment_counts_from() -> None:
    actions = adapt(specs.BoundedArray((), np.int64, 3, 5), None)
    assert actions.spec.num_values == 3
    written = actions.write(np.int32(0))
    assert (written, type(written)) == (3, np.int64)


def test_the_kind_of_action_is_told_from_either_spec() -> None:
    discrete = specs.DiscreteArray(3)
    assert action_kind(discrete) == "discrete"
    assert action_kind(specs.BoundedArray((1,), float, -1, 1)) == "continuous"
    with pytest.raises(UnsupportedEnvironment, match="action must be"):
        action_kind({"a": discrete})


class Toy(gymnasium.Env):
    """A gymnasium environment with the spaces it is given."""

    def __init__(self, observation: spaces.Space, action: spaces.Space) -> None:
        self.observation_space, self.action_space = observation, action
        self.ends = (False, False)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple:
        assert self.action_space.contains(action)
        return self.observation_space.sample(), 0.0, *self.ends, {}


BOX = spaces.Box(-1, 1, (2,))
FIELDS = spaces.Dict(
    d=spaces.Discrete(3, start=5),
    t=spaces.Tuple((BOX, spaces.MultiBinary(4))),
    m=spaces.MultiDiscrete([2, 3]),
)


def test_nested_spaces_are_served_and_discrete_ones_are_one_hot() -> None:
    environment = EdgeEnvironment(GymEnvironment(Toy(FIELDS, spaces.Discrete(2)), 0))
    observation = environment.reset().observation
    assert sorted(observation["d"].tolist()) == [0.0, 0.0, 1.0]
    assert observation["t"][1].shape == (4,) and observation["m"].dtype == np.float32
    assert environment.step(1).mid()


@pytest.mark.parametrize(
    "ends, discount",
    [((True, False), 0.0), ((False, True), 1.0), ((True, True), 0.0)],
)
def test_only_termination_takes_the_discount(ends: tuple, discount: float) -> None:
    toy = Toy(BOX, spaces.Discrete(2, start=1))
    environment = EdgeEnvironment(GymEnvironment(toy, 0))
    environment.reset()
    toy.ends = ends
    timestep = environment.step(np.int32(1))
    assert timestep.last() and timestep.discount == discount


@pytest.mark.parametrize(
    "observation, action, words",
    [
        (BOX, spaces.MultiDiscrete([2, 2]), "action must be Discrete or Box"),
        (BOX, spaces.Text(4), "action must be Discrete or Box"),
        (BOX, spaces.Dict(a=BOX), "action must be Discrete or Box"),
        (BOX, spaces.Box(0, 9, (2,), np.uint8), "got uint8 of shape (2,)"),
        (spaces.Dict(a=BOX, b=spaces.Text(4)), BOX, "observation.b must be"),
        (spaces.Tuple((BOX, spaces.Graph(BOX, None))), BOX, "observation[1] must be"),
    ],
)
def test_spaces_that_we_cannot_serve_are_refused_by_field(
    observation: spaces.Space, action: spaces.Space, words: str
) -> None:
    with pytest.raises(UnsupportedEnvironment) as caught:
        EdgeEnvironment(GymEnvironment(Toy(observation, action), 0))
    assert words in str(caught.value)


class SpaceFails(Toy):
    """Its action space raises."""

    def __init__(self) -> None:
        self.observation_space = BOX

    @property
    def action_space(self) -> spaces.Space:
        raise RuntimeError("no\nspace")


class Spaceless(gymnasium.Env):
    """Has no spaces at all."""


@pytest.mark.parametrize(
    ("toy", "words"),
    [
        (SpaceFails, "action_space cannot be read: RuntimeError: no space"),
        (Spaceless, "action_space cannot be read: AttributeError: "),
    ],
)
def test_a_space_that_cannot_be_read_is_refused(toy: type, words: str) -> None:
    with pytest.raises(UnsupportedEnvironment) as caught:
        GymEnvironment(toy(), 0)
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("field", ["observation_spec", "action_spec", "reward_spec"])
def test_a_spec_that_cannot_be_read_is_refused(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Scripted) -> None:
        raise RuntimeError("no spec")

    monkeypatch.setattr(Scripted, field, fail)
    with pytest.raises(UnsupportedEnvironment) as caught:
        EdgeEnvironment(Scripted(0.0, scalar()))
    assert str(caught.value) == f"{field}() failed: RuntimeError: no spec"


@pytest.mark.parametrize(
    "spec", [{}, (), {"a": {}}, specs.Array((0,), float), [specs.Array((2, 0), "f4")]]
)
def test_an_observation_of_nothing_is_refused(spec: Any) -> None:
    with pytest.raises(UnsupportedEnvironment, match="observation must hold at least"):
        EdgeEnvironment(Scripted(spec, spec))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_largest_float_is_no_bound(dtype: type) -> None:
    top = np.finfo(dtype).max
    spec = specs.BoundedArray((2,), dtype, [-top, -3], [1, top])
    with pytest.raises(UnsupportedEnvironment, match="infinite bounds"):
        adapt(spec, None)
    written = adapt(spec, 2.0).write(np.array([-1, 1]))
    assert written.tolist() == [-2, 2]


@pytest.mark.parametrize("value", [4, 8, -1, None])
def test_a_discrete_observation_out_of_its_space_is_named(value: Any) -> None:
    toy = Toy(FIELDS, spaces.Discrete(2))
    environment = EdgeEnvironment(GymEnvironment(toy, 0))
    environment.reset()
    toy.step = lambda action: ({"d": value}, 0.0, False, False, {})
    with pytest.raises(OutOfSpec, match=r"observation\.d must lie in 5\.\.7, got"):
        environment.step(0)


def test_the_edge_needs_no_library_of_environments() -> None:
    program = (
        "import sys, acme_quant.environments; sys.exit('gymnasium' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
