"""`atari:Game`: the Arcade Learning Environment with the standard preprocessing.

Mnih et al. 2015, Machado et al. 2018: an action is repeated for 4 frames, the maximum
of the last 2 frames removes flicker, grey 84x84, the last 4 such images stacked, uint8
all the way (the policy scales once), minimal action set, 30 minutes of play at most.
Without sticky actions every episode starts with up to 30 no-ops, since the console
itself is deterministic.
"""

from __future__ import annotations

from typing import Any

import ale_py
import cv2
import dm_env
import numpy as np
from ale_py import roms
from dm_env import specs

from acme_quant.environments import nearest
from acme_quant.environments.errors import UnknownEnvironment

ACTION_REPEAT = 4
STACK = 4
SIZE = 84
MAX_NOOPS = 30
MAX_FRAMES = 30 * 60 * 60  # 30 minutes at 60 frames a second.


def make(name: str, seed: int, sticky_actions: float = 0.0) -> AtariEnvironment:
    """Returns the game `name`, in the console's camel case (`Pong`, `SpaceInvaders`).

    Args:
      name: game, in any of the spellings Pong, pong, space_invaders.
      seed: seed of the console's sticky actions and of the no-op starts.
      sticky_actions: probability that the console repeats the previous action; 0.25
        in Machado et al. 2018.

    Raises:
      UnknownEnvironment: naming the nearest games.
    """
    game = rom_id(name)
    if game is None:
        raise UnknownEnvironment(
            f"atari has no game {name!r}: expected atari:Game"
            f"{nearest.suggest('atari:' + name, names())}."
        )
    return AtariEnvironment(str(roms.get_rom_path(game)), seed, sticky_actions)


def rom_id(name: str) -> str | None:
    """Returns the console's id of the game `name`, None if there is none.

    Ids such as up_n_down and tic_tac_toe_3d cannot be told from camel case: spellings
    are compared without their underscores.
    """
    by_letters = {game.replace("_", ""): game for game in roms.get_all_rom_ids()}
    return by_letters.get(name.replace("_", "").lower())


def names() -> list[str]:
    """Returns the names of all games."""
    return [f"atari:{g.title().replace('_', '')}" for g in roms.get_all_rom_ids()]


class AtariEnvironment(dm_env.Environment):
    """One game: action int32 (), observation uint8 [84, 84, 4], oldest image first."""

    def __init__(self, rom_path: str, seed: int, sticky_actions: float) -> None:
        """Initializes the console with the game at `rom_path`."""
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        cv2.setNumThreads(1)  # An actor is one thread.
        self._ale = ale_py.ALEInterface()
        self._ale.setInt("random_seed", seed % 2**31)
        self._ale.setFloat("repeat_action_probability", sticky_actions)
        self._ale.setInt("max_num_frames_per_episode", MAX_FRAMES)
        self._ale.loadROM(rom_path)
        self._rng = np.random.default_rng(seed % 2**63)
        self._max_noops = 0 if sticky_actions else MAX_NOOPS
        self._actions = self._ale.getMinimalActionSet()
        height, width = self._ale.getScreenDims()
        self._frames = np.zeros((2, height, width), np.uint8)
        self._stack = np.zeros((SIZE, SIZE, STACK), np.uint8)
        self._resets = True

    def reset(self) -> dm_env.TimeStep:
        """Starts a game, earlier images of the stack black."""
        self._resets = False
        self._ale.reset_game()
        if self._max_noops:
            for _ in range(self._rng.integers(self._max_noops + 1)):
                self._ale.act(0)
        self._stack[:] = 0
        self._frames[:] = self._ale.getScreenGrayscale()
        return dm_env.restart(self._push())

    def step(self, action: Any) -> dm_env.TimeStep:
        """Repeats one action; the rewards of the frames are summed."""
        if self._resets:
            return self.reset()
        chosen, reward = self._actions[int(action)], 0.0
        for frame in range(ACTION_REPEAT):
            reward += self._ale.act(chosen)
            if frame >= ACTION_REPEAT - 2:
                self._ale.getScreenGrayscale(self._frames[frame - ACTION_REPEAT + 2])
            if self._ale.game_over():
                self._frames[:] = self._ale.getScreenGrayscale()
                break
        return self._timestep(reward, self._push())

    def _timestep(self, reward: float, observation: np.ndarray) -> dm_env.TimeStep:
        if not self._ale.game_over():
            return dm_env.transition(reward, observation)
        self._resets = True
        if self._ale.game_over(with_truncation=False):
            return dm_env.termination(reward, observation)
        return dm_env.truncation(reward, observation)

    def _push(self) -> np.ndarray:
        """Appends the newest image to the stack and returns the stack."""
        screen = np.maximum(self._frames[0], self._frames[1])
        image = cv2.resize(screen, (SIZE, SIZE), interpolation=cv2.INTER_AREA)
        self._stack[..., :-1] = self._stack[..., 1:]
        self._stack[..., -1] = image
        return self._stack

    def screen(self) -> np.ndarray:
        """Returns what the console shows, uint8 [height, width, 3]."""
        return self._ale.getScreenRGB()

    def observation_spec(self) -> specs.Array:
        """Returns uint8 [84, 84, 4]."""
        return specs.Array((SIZE, SIZE, STACK), np.uint8, name="observation")

    def action_spec(self) -> specs.DiscreteArray:
        """Returns the minimal action set's indices."""
        return specs.DiscreteArray(len(self._actions), name="action")
