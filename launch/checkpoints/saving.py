"""When the learner's node saves, and what goes into a checkpoint beside the arrays."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from acme_quant.launch.checkpoints.deposits import (
    CALL_TIMEOUT_S,
    EVALUATOR,
    QUANTIZER,
    Keeper,
)
from acme_quant.launch.checkpoints.learner_state import LearnerState
from acme_quant.launch.checkpoints.replay_saver import ReplaySaver
from acme_quant.launch.settings.config import Run
from acme_quant.peers import calls
from acme_quant.records.checkpoints import BackgroundSaver, Checkpoints
from acme_quant.records.say import say

if TYPE_CHECKING:
    from acme import specs

CHECKPOINTS = "checkpoints"
FINAL_SAVE_S = 8.0
_NAMED_PACKAGES = ("acme-quant", "dm-acme", "tensorflow", "numpy")


def checkpoints_of(run: Run) -> Checkpoints:
    """Returns the checkpoints in a run's folder."""
    return Checkpoints(run.workdir / CHECKPOINTS, run.config.keep_checkpoints)


class LearnerSaver:
    """Saves the learner every so often, in the background, and at the end.

    Attributes:
      policy_version: returns the newest version, when the learner itself publishes;
        else the quantizer has left it with the counter.
    """

    def __init__(
        self,
        run: Run,
        spec: specs.EnvironmentSpec,
        state: LearnerState,
        policy: Sequence[str],
        counter: Keeper,
        replay: ReplaySaver,
        started: float,
    ) -> None:
        """Prepares to save.

        Args:
          run: the run's configuration.
          spec: its environment's.
          state: the learner's variables.
          policy: names of the policy's arrays, in the order the graph counts them.
          counter: the run's.
          replay: saves the replay, if that is asked for.
          started: time.time() at launch.
        """
        self._state = state
        self._counter: Keeper = calls.bounded(counter, CALL_TIMEOUT_S)
        self._replay = replay
        self._started = started
        self._every_s = run.config.checkpoint_every_s
        self._due = time.monotonic() + self._every_s
        self._saver = BackgroundSaver(checkpoints_of(run), _report)
        self.policy_version: Callable[[], int] | None = None
        self._unchanging = {
            "policy": list(policy),
            "settings": json.loads(run.to_json()),
            "specs": {
                "observations": repr(spec.observations),
                "actions": repr(spec.actions),
            },
            "versions": versions(),
            "folder": os.getcwd(),
        }

    def after_step(self, learner_steps: int) -> None:
        """Starts a save when it is time and the last one is done."""
        if self._every_s and time.monotonic() >= self._due and not self._saver.busy:
            self._due = time.monotonic() + self._every_s
            self._save(learner_steps)

    def at_the_end(self, learner_steps: int) -> None:
        """Saves once more, in bounded time, unless nothing has been learnt.

        Also when no step was taken since the last save: the actors have taken some.
        """
        if not self._every_s or not self._saver.wait(FINAL_SAVE_S):
            return
        if learner_steps:
            self._save(learner_steps)
            self._saver.wait(FINAL_SAVE_S)

    def _save(self, learner_steps: int) -> None:
        wall_s = time.time() - self._started

        def make_facts() -> tuple[Mapping[str, Any], float | None]:
            return self._facts(learner_steps, wall_s)

        self._saver.save(self._state.copy(), make_facts)

    def _facts(
        self, learner_steps: int, wall_s: float
    ) -> tuple[Mapping[str, Any], float | None]:
        """Returns what a resume needs beside the arrays, and the last return."""
        counts = self._counter.get_counts()
        deposits = self._counter.get_deposits()
        # The arrays are of this step; the counter may be some steps behind or ahead.
        counts = {**counts, "learner_steps": learner_steps}
        evaluator = json.loads(deposits.get(EVALUATOR, "{}"))
        facts = {
            "counts": counts,
            "deposits": deposits,
            "policy_version": self._version(deposits),
            "wall_s": wall_s,
            "replay": self._replay.save(),
            **self._unchanging,
        }
        return facts, evaluator.get("episode_return")

    def _version(self, deposits: Mapping[str, str]) -> int:
        if self.policy_version is not None:
            return self.policy_version()
        return json.loads(deposits.get(QUANTIZER, "{}")).get("policy_version", 0)


def _report(sentence: str) -> None:
    say(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}")


def versions() -> dict[str, str]:
    """Returns the versions that decide what a checkpoint's arrays mean."""
    found = {"python": platform.python_version()}
    for name in _NAMED_PACKAGES:
        found[name] = importlib.metadata.version(name)
    return found


def restore(run: Run, state: LearnerState) -> None:
    """Gives a resumed run's learner the arrays of its checkpoint.

    Raises:
      Mismatch: if the networks have other shapes now.
      BrokenCheckpoint: if its files have changed since the launcher looked.
    """
    if run.start.checkpoint is None:
        return
    checkpoint = checkpoints_of(run).open(run.start.checkpoint)
    checkpoint.check(state.like())
    arrays: Mapping[str, np.ndarray] = checkpoint.read()
    state.restore(arrays)
    say(f"restored {len(arrays)} arrays of checkpoint {checkpoint.number}")
