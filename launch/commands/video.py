"""One episode of a policy as a video.

Drawing needs OpenGL, which may be absent, or break the process that tries it; so it
happens in a process of its own, and a video that fails is a sentence.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from acme_quant.launch.settings import user_process

if TYPE_CHECKING:
    import dm_env

    from acme_quant.launch.settings.config import Run
    from acme_quant.policy.quantized_policy import QuantizedPolicy

TIMEOUT_S = 600
WIDTH, HEIGHT = 320, 240
MOST_FRAMES_PER_S = 30


def record(run: Run, policy: QuantizedPolicy, seed: int, path: pathlib.Path) -> str:
    """Writes a video of one episode; returns what became of it, in one sentence."""
    with tempfile.TemporaryDirectory() as folder:
        policy_path = pathlib.Path(folder) / "policy.aq"
        policy.save(policy_path)
        request = {
            "settings": json.loads(run.to_json()),
            "policy": str(policy_path),
            "seed": seed,
            "path": str(path.absolute()),
        }
        # Without a display the suite draws off screen.
        env = dict(os.environ)
        if "DISPLAY" not in env:
            env.setdefault("MUJOCO_GL", "egl")
            env.setdefault("SDL_VIDEODRIVER", "dummy")
        command = [sys.executable, "-m", "acme_quant.launch.commands.video"]
        try:
            done = user_process.run(command, TIMEOUT_S, env, json.dumps(request))
        except subprocess.TimeoutExpired:
            return f"no video: it was not done within {TIMEOUT_S} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"signal {-done.returncode}"]
        return f"no video: {lines[-1]}"
    return done.stdout.strip().splitlines()[-1]


def main() -> None:
    """Records as the request on standard input says."""
    from acme_quant.launch.settings.config import Run
    from acme_quant.policy.quantized_policy import QuantizedPolicy

    request = json.load(sys.stdin)
    run = Run.from_settings(request["settings"])
    environment, draw, frames_per_s = _filmed(run, request["seed"])
    policy = QuantizedPolicy.load(request["policy"])
    total, frames = _film(run, environment, policy, draw, frames_per_s)
    environment.close()
    _write(request["path"], frames, frames_per_s)
    print(f"video: {request['path']}, {len(frames)} frames, return {total:.2f}")
    sys.stdout.flush()
    os._exit(0)  # Nobody's threads have a say in the end.


def _film(
    run: Run,
    environment: dm_env.Environment,
    policy: QuantizedPolicy,
    draw: Callable[[], np.ndarray],
    frames_per_s: float,
) -> tuple[float, list[np.ndarray]]:
    """Returns the return of one episode and its frames, uint8 [height, width, 3]."""
    from acme import specs

    from acme_quant.acting.behaviour import Behaviour, FixedPolicy

    greedy = run.agent.greedy(specs.make_environment_spec(environment))
    act = Behaviour(FixedPolicy(policy), greedy, np.random.default_rng(0))
    act.begin()
    every = max(1, round(frames_per_s / MOST_FRAMES_PER_S))
    timestep, total, steps = environment.reset(), 0.0, 0
    frames = [draw()]
    most = run.config.evaluation_max_steps or math.inf
    while not timestep.last() and steps < most:
        timestep = environment.step(act(timestep.observation))
        total += float(timestep.reward)
        steps += 1
        if steps % every == 0:
            frames.append(draw())
    return total, frames


def _write(path: str, frames: list[np.ndarray], frames_per_s: float) -> None:
    import imageio

    pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
    rate = min(frames_per_s, MOST_FRAMES_PER_S)
    # Widths of any size: players want even ones, and the codec blocks of 16.
    with imageio.get_writer(path, fps=rate, macro_block_size=2) as writer:
        for frame in frames:
            writer.append_data(frame)


def _filmed(run: Run, seed: int) -> tuple[Any, Callable[[], np.ndarray], float]:
    """Returns an environment, what draws it, and its steps in a second."""
    from acme_quant.environments.edge import EdgeEnvironment

    kind, _, name = run.config.env.partition(":")
    if kind not in _FILMS:
        raise ValueError(f"expected an environment that can be drawn, got {kind}.")
    inner, draw, rate = _FILMS[kind](name, seed)
    limit = run.config.action_limit or None
    return EdgeEnvironment(inner, action_limit=limit), draw, rate


def _suite(name: str, seed: int) -> tuple[Any, Callable[[], np.ndarray], float]:
    # Imported here first, with OpenGL; training imports it without.
    from dm_control import suite  # noqa: F401

    from acme_quant.environments import dm_control

    environment = dm_control.make(name, seed, drawn=True)
    rate = 1.0 / environment.control_timestep()
    return environment, lambda: environment.physics.render(HEIGHT, WIDTH, 0), rate


def _gym(name: str, seed: int) -> tuple[Any, Callable[[], np.ndarray], float]:
    import gymnasium

    from acme_quant.environments.gym import GymEnvironment

    drawn = gymnasium.make(name, render_mode="rgb_array", disable_env_checker=True)
    rate = drawn.metadata.get("render_fps", MOST_FRAMES_PER_S)
    return GymEnvironment(drawn, seed), drawn.render, rate


def _atari(name: str, seed: int) -> tuple[Any, Callable[[], np.ndarray], float]:
    from acme_quant.environments import atari

    environment = atari.make(name, seed)
    return environment, environment.screen, 60.0 / atari.ACTION_REPEAT


_FILMS = {"dm_control": _suite, "gym": _gym, "atari": _atari}


if __name__ == "__main__":
    main()
