"""How much memory a full replay takes, and how much there is."""

from __future__ import annotations

import math
import pathlib
import resource
from typing import TYPE_CHECKING

from acme_quant.launch.settings import control_groups

if TYPE_CHECKING:
    from acme import specs

    Nest = specs.Array | dict[str, "Nest"] | list["Nest"] | tuple["Nest", ...]

# What Reverb 0.7.3 keeps for an item beside its numbers, measured as the growth of a
# server's resident memory: 1700 to 1900 bytes an item for rows of 20 and 400 bytes,
# 3400 for images of 28 kB.
ITEM_OVERHEAD_BYTES = 1_900


def item_bytes(spec: specs.EnvironmentSpec) -> int:
    """Returns the bytes that one transition takes in replay.

    An observation counts once: the end of one transition is the start of another, and
    the adder writes it as one row.
    """
    numbers = (spec.observations, spec.actions, spec.rewards, spec.discounts)
    return ITEM_OVERHEAD_BYTES + sum(_row_bytes(part) for part in numbers)


def replay_bytes(spec: specs.EnvironmentSpec, max_replay_size: int) -> int:
    """Returns the bytes of a replay that is full."""
    return item_bytes(spec) * max_replay_size


def available_bytes() -> int:
    """Returns the bytes that this machine, container, job and shell still give."""
    return min(_machine_bytes(), control_groups.memory_left(), _address_space_left())


def describe(replay: int, available: int) -> str:
    """Returns a sentence that compares a full replay with the memory there is."""
    warning = "warning: " if replay > available else ""
    sizes = f"{_giga(replay)}, {_giga(available)} are available"
    return f"{warning}a full replay takes {sizes}"


def _giga(size: int) -> str:
    return f"{size / 1e9:.1f} GB"


def _row_bytes(spec: Nest) -> int:
    if isinstance(spec, dict):
        return sum(_row_bytes(part) for part in spec.values())
    if isinstance(spec, (list, tuple)):
        return sum(_row_bytes(part) for part in spec)
    return math.prod(spec.shape) * spec.dtype.itemsize


def _machine_bytes() -> int:
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return control_groups.UNLIMITED


def _address_space_left() -> int:
    """Returns what `ulimit -v` leaves a process; each node may take as much."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit == resource.RLIM_INFINITY:
        return control_groups.UNLIMITED
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    return max(0, limit - pages * resource.getpagesize())
