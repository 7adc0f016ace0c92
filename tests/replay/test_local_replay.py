"""A replay within one process: Reverb's items and rules, and batches by seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tree
from acme import specs

from acme_quant.replay import adder, local, local_batches

reverb = pytest.importorskip("reverb")
acme_adders = pytest.importorskip("acme.adders.reverb")

TABLE = adder.DEFAULT_TABLE
SPEC = specs.EnvironmentSpec(
    observations={"b": specs.Array((2,), np.float32), "a": specs.Array((), np.uint8)},
    actions=specs.BoundedArray((1,), np.float32, -1, 1),
    rewards=specs.Array((), np.float32),
    discounts=specs.BoundedArray((), np.float32, 0, 1),
)


def make_table(sampler: Any = None, max_size: int = 1000, limiter: Any = None) -> Any:
    return reverb.Table(
        TABLE,
        sampler=sampler or reverb.selectors.Uniform(),
        remover=reverb.selectors.Fifo(),
        max_size=max_size,
        rate_limiter=limiter or reverb.rate_limiters.MinSize(1),
        signature=acme_adders.NStepTransitionAdder.signature(SPEC),
    )


def make_replay(seed: int = 0, **options: Any) -> local.LocalReplay:
    return local.LocalReplay(make_table(**options), seed)


def row(value: int) -> list[np.ndarray]:
    """Returns the columns of a transition made of `value`."""
    observation = [np.uint8(value), np.full(2, value, np.float32)]
    step = [np.full(1, value, np.float32), np.float32(value), np.float32(1)]
    return [np.asarray(column) for column in (*observation, *step, *observation)]


def act(client: Any) -> None:
    """Writes two episodes with the adder."""
    import dm_env

    writer = adder.NStepTransitionAdder(client, 3, 0.9)
    rng = np.random.default_rng(5)
    # One array for all steps, as some environments have it.
    observation = {"a": np.zeros((), np.uint8), "b": np.zeros(2, np.float32)}
    for length in (2, 7):
        writer.add_first(dm_env.restart(observation))
        for t in range(1, length + 1):
            observation["b"][:] = rng.random(2)
            observation["a"][...] = t
            kind = dm_env.StepType.LAST if t == length else dm_env.StepType.MID
            reward, discount = np.float32(rng.random()), np.float32(t != length)
            step = dm_env.TimeStep(kind, reward, discount, observation)
            writer.add(rng.random(1).astype(np.float32), step)
    writer.reset()
    writer.close()


def test_the_adder_writes_the_items_that_reverb_gets() -> None:
    server = reverb.Server([make_table(reverb.selectors.Fifo())], port=None)
    client = reverb.Client(f"localhost:{server.port}")
    act(client)
    size = client.server_info()[TABLE].current_size
    replay = make_replay()
    act(replay)
    assert len(replay._items) == size == 12
    # Fifo gives the same item until it is gone.
    expected = []
    for _ in range(size):
        (sample,) = client.sample(TABLE, 1, emit_timesteps=False)
        expected.append(tree.flatten(sample.data))
        client.mutate_priorities(TABLE, deletes=[sample.info.key])
    server.stop()
    for ours, theirs in zip(replay._items, expected):
        for our, their in zip(ours, theirs, strict=True):
            assert our.dtype == their.dtype and our.tobytes() == their.tobytes()


def drawn(replay: local.LocalReplay, batches: int = 50) -> list[np.ndarray]:
    """Returns values and probabilities of some batches of 8."""
    samples = [replay.sample(8) for _ in range(batches)]
    return [np.concatenate([s[i] for s in samples]) for i in (0, 1, 4)]


SAMPLERS: dict[str, Callable[[], Any]] = {
    "uniform": reverb.selectors.Uniform,
    "prioritized": lambda: reverb.selectors.Prioritized(0.6),
}


@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS.keys())
def test_a_seed_repeats_the_batches_and_another_does_not(sampler: Callable) -> None:
    found = []
    for seed in (1, 1, 2):
        replay = make_replay(seed, sampler=sampler())
        for value in range(20):
            replay.insert(TABLE, value + 1.0, row(value))
        found.append(drawn(replay))
    np.testing.assert_equal(found[0], found[1])
    assert (found[0][2] != found[2][2]).any()


def test_items_are_drawn_by_their_priority_to_the_exponent() -> None:
    replay = make_replay(sampler=reverb.selectors.Prioritized(0.6))
    priorities = np.array([0.5, 0.0, 3.0, 1.0])
    for value in range(4):
        replay.insert(TABLE, 1.0, row(value))
    replay.mutate_priorities(TABLE, dict(enumerate(priorities)))
    weights = np.where(priorities > 0, priorities**0.6, 0)
    expected = weights / weights.sum()
    keys, probabilities, values = drawn(replay, 2000)
    np.testing.assert_array_equal(keys, values)
    np.testing.assert_allclose(probabilities, expected[values], rtol=1e-12)
    counts = np.bincount(values, minlength=4)
    # Five standard deviations of a count of 16,000 draws are below 320.
    assert abs(counts - 16_000 * expected).max() < 320 and counts[1] == 0


def test_a_full_table_forgets_the_oldest_items_and_their_keys() -> None:
    replay = make_replay(sampler=reverb.selectors.Prioritized(1.0), max_size=5)
    for value in range(13):
        replay.insert(TABLE, 1.0, row(value))
    keys, probabilities, values = drawn(replay)
    assert set(values) == set(range(8, 13)) and set(probabilities) == {0.2}
    np.testing.assert_array_equal(keys, values)
    # Key 7 is gone; its place is that of key 12 now.
    replay.mutate_priorities(TABLE, {7: 0.0, 9: 4.0})
    keys, probabilities, _ = drawn(replay)
    assert set(keys) == set(range(8, 13))
    assert set(probabilities[keys == 9]) == {0.5}


def test_the_rate_is_that_of_the_tables_limiter() -> None:
    limiter = reverb.rate_limiters.SampleToInsertRatio(4.0, 10, error_buffer=8.0)
    replay, allowed = make_replay(limiter=limiter), []
    for value in range(13):
        replay.insert(TABLE, 1.0, row(value))
        count = 0
        while replay.can_sample(4):
            replay.sample(4)
            count += 1
        allowed.append(count)
    # From ten items on; two batches at once by the error, then one an insertion.
    assert allowed == [0] * 9 + [2, 1, 1, 1]


def test_an_item_that_does_not_fit_is_refused() -> None:
    replay = make_replay()
    with pytest.raises(ValueError, match="expected an item of shapes"):
        replay.insert(TABLE, 1.0, row(1)[:-1])
    with pytest.raises(ValueError, match="'priority_table', got 'other'"):
        replay.insert("other", 1.0, row(1))


def test_a_graph_draws_a_batch_each_time_it_runs() -> None:
    import tensorflow as tf

    replay = make_replay()
    for value in range(20):
        replay.insert(TABLE, 1.0, row(value))
    batches = local_batches.LocalBatches(replay, 16)

    @tf.function
    def step() -> Any:
        return next(iter(batches))

    first, second = step(), step()
    assert first.data.observation["b"].shape == (16, 2)
    assert first.info.key.dtype == tf.uint64
    np.testing.assert_array_equal(first.data.reward, first.info.key)
    assert (first.info.key.numpy() != second.info.key.numpy()).any()
    assert batches.waited_s > 0
