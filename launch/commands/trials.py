"""What `doctor` tries out, each in a process of its own.

    python -m acme_quant.launch.commands.trials NAME [flags of acme-quant train]

A trial prints one line and exits 0, or fails with an error that names its cause.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

# 512 MB: logs, CSV files and a few checkpoints of a usual policy.
WANTED_FREE_BYTES = 512 << 20
TIMEOUT_S = 20


def main(argv: list[str]) -> None:
    """Runs one trial and leaves, with 2 when the flags cannot be parsed."""
    name, flags = argv[1], argv[2:]
    print(TRIALS[name](flags), flush=True)
    # Nobody's threads have a say in the end.
    sys.stderr.flush()
    os._exit(0)


def _run(flags: list[str]) -> Any:
    """Returns the run that the flags describe; leaves with 2 for an unknown flag."""
    from acme_quant.launch.settings import checks, config

    try:
        return checks.parse(["acme-quant doctor", *flags])
    except config.UsageError as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None


def try_kernels(flags: list[str]) -> str:
    """Compares the chosen kernels with known answers."""
    del flags
    from acme_quant import kernels

    got = kernels.crc32c(b"123456789")
    if got != 0xE3069283:
        raise ValueError(f"expected the checksum e3069283 of the kernels, got {got:x}")
    weight = np.array([[1.0, -2.0], [-4.0, 0.5]], np.float32)
    largest = kernels.column_absmax(weight).tolist()
    if largest != [4.0, 2.0]:
        raise ValueError(f"expected column maxima [4, 2], got {largest}")
    return f"{kernels.isa()} (of {', '.join(kernels.ISAS)})"


def try_environment(flags: list[str]) -> str:
    """Resets and steps the environment of the flags."""
    run = _run(flags)
    from acme_quant import environments

    environment = environments.make_environment(
        run.config.env, seed=0, **run.environment_options
    )
    environment.reset()
    spec = environment.action_spec()
    began = time.perf_counter()
    for _ in range(10):
        environment.step(np.zeros(spec.shape, spec.dtype))
    micros = (time.perf_counter() - began) / 10 * 1e6
    environment.close()
    return f"{run.config.env}: {micros:.0f} us a step"


def try_tensorflow(flags: list[str]) -> str:
    """Multiplies on TensorFlow's runtime."""
    del flags
    import tensorflow as tf

    product = tf.linalg.matmul(tf.eye(2), tf.constant([[2.0], [3.0]])).numpy()
    if product.ravel().tolist() != [2.0, 3.0]:
        raise ValueError(f"expected [2, 3] of TensorFlow, got {product.ravel()}")
    import sonnet as snt

    return f"TensorFlow {tf.__version__}, Sonnet {snt.__version__}"


def try_reverb(flags: list[str]) -> str:
    """Sends one item to a replay server on loopback and samples it."""
    del flags
    import reverb

    server = reverb.Server([reverb.Table.queue("trial", 1)])
    client = reverb.Client(f"localhost:{server.port}")
    began = time.perf_counter()
    client.insert([np.arange(3, dtype=np.float32)], {"trial": 1.0})
    sample = next(client.sample("trial", 1))
    millis = (time.perf_counter() - began) * 1e3
    if not np.array_equal(sample[0].data[0], [0.0, 1.0, 2.0]):
        raise ValueError(f"expected [0, 1, 2] back of replay, got {sample[0].data[0]}")
    server.stop()
    return f"round trip in {millis:.1f} ms"


def try_courier(flags: list[str]) -> str:
    """Calls a server on loopback."""
    del flags
    import courier

    server = courier.Server()
    server.Bind("negate", lambda array: -array)
    server.Start()
    client = courier.Client(f"localhost:{server.port}")
    began = time.perf_counter()
    answer = client.futures.negate(np.ones(3, np.float32)).result(TIMEOUT_S)
    millis = (time.perf_counter() - began) * 1e3
    if answer.tolist() != [-1.0] * 3:
        raise ValueError(f"expected [-1, -1, -1] of Courier, got {answer}")
    server.Stop()
    return f"round trip in {millis:.1f} ms"


def try_checkpoint(flags: list[str]) -> str:
    """Writes a checkpoint and reads it back."""
    del flags
    from acme_quant.records.checkpoints import Checkpoints

    with tempfile.TemporaryDirectory() as folder:
        store = Checkpoints(pathlib.Path(folder))
        store.save({"trial": np.arange(3)}, {})
        _, arrays, _ = store.newest_whole()
    if arrays["trial"].tolist() != [0, 1, 2]:
        raise ValueError(f"expected [0, 1, 2] back, got {arrays['trial']}")
    return "written and read back"


def try_workdir(flags: list[str]) -> str:
    """Writes a file where the run would."""
    folder = pathlib.Path(_run(flags).config.workdir or ".").absolute()
    there = next(p for p in (folder, *folder.parents) if p.exists())
    with tempfile.TemporaryFile(dir=there) as file:
        file.write(b"trial")
        file.flush()
    free = shutil.disk_usage(there).free
    if free < WANTED_FREE_BYTES:
        raise OSError(
            f"expected {WANTED_FREE_BYTES >> 20} MB free in {there}, "
            f"got {free >> 20} MB"
        )
    return f"{there} is writable, {free / 1e9:.0f} GB are free"


def try_memory(flags: list[str]) -> str:
    """Compares a full replay with the memory that there is."""
    run = _run(flags)
    from acme_quant import environments
    from acme_quant.launch.settings import memory

    spec = environments.environment_spec(run.config.env, **run.environment_options)
    replay = memory.replay_bytes(spec, run.agent_config.max_replay_size)
    available = memory.available_bytes()
    text = memory.describe(replay, available).removeprefix("warning: ")
    if replay > available:
        most = available // memory.item_bytes(spec)
        raise MemoryError(f"{text}: expected --max_replay_size of {most} at most")
    return text


TRIALS: dict[str, Callable[[list[str]], str]] = {
    "kernels": try_kernels,
    "environment": try_environment,
    "tensorflow": try_tensorflow,
    "reverb": try_reverb,
    "courier": try_courier,
    "checkpoint": try_checkpoint,
    "workdir": try_workdir,
    "memory": try_memory,
}

if __name__ == "__main__":
    main(sys.argv)
