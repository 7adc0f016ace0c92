"""What checkpoints cost a learner of 3x2048 networks: copying, then a thread's CPU.

    python tests/faults/measure_checkpoint_cost.py

The learner's own thread does nothing but copy; the rest is CPU time of other threads,
which costs the learner at most what it takes of the cores the learner uses.
"""

from __future__ import annotations

import json
import pathlib
import resource
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from acme import specs
from acme.agents.tf import d4pg as acme_d4pg
from acme.utils import loggers

from acme_quant.agents import d4pg
from acme_quant.launch.checkpoints.learner_state import LearnerState
from acme_quant.records.checkpoints import BackgroundSaver, Checkpoints

EVERY_S = 60.0
SIZES = (2048, 2048, 2048)
SECONDS = 20.0
PAIRS = 3


def make_learner() -> Any:
    """Returns Acme's D4PG learner on made-up transitions."""
    observation = specs.Array((17,), np.float32)
    action = specs.BoundedArray((6,), np.float32, -1.0, 1.0)
    scalar = specs.Array((), np.float32)
    discount = specs.BoundedArray((), np.float32, 0.0, 1.0)
    spec = specs.EnvironmentSpec(observation, action, scalar, discount)
    config = d4pg.Config(policy_layers=SIZES, critic_layers=SIZES, batch_size=64)
    online, target = d4pg.AGENT.make_learner_networks(spec, config)
    learner = acme_d4pg.D4PGLearner(
        policy_network=online.policy_network,
        critic_network=online.critic_network,
        target_policy_network=target.policy_network,
        target_critic_network=target.critic_network,
        observation_network=online.observation_network,
        target_observation_network=target.observation_network,
        discount=0.99,
        target_update_period=100,
        dataset_iterator=iter(transitions(config.batch_size)),
        logger=loggers.NoOpLogger(),
        checkpoint=False,
    )
    d4pg.make_slots(learner)
    return learner


def transitions(batch: int) -> tf.data.Dataset:
    """Returns one batch for ever, in the shape of Reverb's samples."""
    import reverb
    from acme import types

    rng = np.random.default_rng(0)

    def rows(width: int) -> np.ndarray:
        return rng.standard_normal((batch, width)).astype(np.float32)

    ones = np.ones(batch, np.float32)
    data = types.Transition(rows(17), np.tanh(rows(6)), ones, ones, rows(17), ())
    info = reverb.SampleInfo(*(np.zeros(batch) for _ in reverb.SampleInfo._fields))
    return tf.data.Dataset.from_tensors(reverb.ReplaySample(info, data)).repeat()


def steps_per_s(learner: Any, first: Callable[[], Any]) -> float:
    """Returns the learner's speed over SECONDS that begin with `first()`."""
    began, steps = time.monotonic(), 0
    first()
    while time.monotonic() - began < SECONDS:
        learner.step()
        steps += 1
    return steps / (time.monotonic() - began)


def cpu_s() -> float:
    """Returns the CPU seconds of all threads of this process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def save_costs(state: LearnerState, saver: BackgroundSaver) -> tuple[float, float]:
    """Returns seconds of copying and CPU seconds of the write, nothing else running."""
    began = time.monotonic()
    arrays = state.copy()
    copied = time.monotonic() - began
    before = cpu_s()
    saver.save(arrays, lambda: ({}, None))
    assert saver.wait(120.0)
    return copied, cpu_s() - before


def policy_read(folder: pathlib.Path, names: list[str]) -> tuple[int, int]:
    """Returns the bytes read for the policy alone, and the bytes it has."""
    Checkpoints(folder).open(1).read(names[:1])
    before = _bytes_read()
    arrays = Checkpoints(folder).open(1).read(names)
    return _bytes_read() - before, sum(a.nbytes for a in arrays.values())


def _bytes_read() -> int:
    return int(pathlib.Path("/proc/self/io").read_text().split()[1])


def alternate(
    learner: Any, state: LearnerState, saver: BackgroundSaver
) -> list[tuple[float, float]]:
    """Returns pairs of speeds: without a save, and with one in that time."""
    pairs = []
    for _ in range(PAIRS):
        without = steps_per_s(learner, lambda: None)
        saved = steps_per_s(
            learner, lambda: saver.save(state.copy(), lambda: ({}, None))
        )
        saver.wait(120.0)
        pairs.append((round(without, 3), round(saved, 3)))
    return pairs


def main() -> None:
    """Prints the costs as JSON."""
    learner = make_learner()
    learner.step()
    state = LearnerState(learner)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        saver = BackgroundSaver(Checkpoints(path), lambda sentence: None)
        state.copy()
        costs = [save_costs(state, saver) for _ in range(3)]
        read, own = policy_read(
            path, state.names_of(d4pg.AGENT.policy_variables(learner))
        )
        pairs = alternate(learner, state, saver)
    copied, cpu = np.median(costs, axis=0)
    print(
        json.dumps(
            {
                "checkpoint_mb": sum(a.nbytes for a in state.copy().values()) / 1e6,
                "copy_s": round(float(copied), 4),
                "write_cpu_s": round(float(cpu), 3),
                "share_of_60_s": round(float(copied + cpu) / EVERY_S, 4),
                "policy_bytes": own,
                "policy_bytes_read": read,
                f"steps_per_s_without_and_with_a_save_in_{SECONDS:.0f}_s": pairs,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
