"""A checkpoint: named arrays and a manifest, whole or not at all.

    FOLDER/arrays/NAME/...    one zarr array each, written by TensorStore
    FOLDER/manifest.json      facts, and a checksum for every array
    FOLDER/COMMIT             written last: the checksum of the manifest

A reader checks what it reads: a missing or torn file and a flipped byte are a
`BrokenCheckpoint`. It may load some arrays, say the policy's, and reads no byte of the
others. `checkpoints` keeps many of these in one folder.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorstore as ts

from acme_quant.records import durable

FORMAT = 1
MANIFEST, COMMIT, ARRAYS = "manifest.json", "COMMIT", "arrays"
# One thread writes: more would take the learner's cores, and the disk is the limit.
# Files are synced all at once before the commit mark, not one by one.
_CONTEXT = {
    "file_io_concurrency": {"limit": 1},
    "data_copy_concurrency": {"limit": 1},
    "file_io_sync": False,
}


class BrokenCheckpoint(ValueError):
    """A checkpoint's files are not what was committed."""


class Mismatch(ValueError):
    """A checkpoint was written by something of another shape."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A committed checkpoint; its arrays are read when asked for.

    Attributes:
      number: counts the checkpoints of one folder from 1.
      path: its folder.
      facts: JSON values that were saved beside the arrays.
      score: what `best` compares, None where none was known.
      table: for each array name its `dtype`, `shape` and `crc32`.
    """

    number: int
    path: pathlib.Path
    facts: dict[str, Any]
    score: float | None
    table: dict[str, dict[str, Any]]

    def names(self, part: str = "") -> list[str]:
        """Returns the names of the arrays of one part, of all without one."""
        inside = [n for n in self.table if not part or (n + "/").startswith(part + "/")]
        return sorted(inside)

    def read(self, names: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """Returns the arrays of these names, of all without any.

        Raises:
          BrokenCheckpoint: if one is missing, torn or altered.
          Mismatch: if the checkpoint was written without one of these names.
        """
        names = self.names() if names is None else names
        for name in names:
            if name not in self.table:
                raise Mismatch(f"checkpoint {self.number} has no array {name!r}.")
        context = ts.Context(_CONTEXT)
        folder = self.path / ARRAYS
        try:
            opened = [ts.open(_spec(folder / n), context=context) for n in names]
            reads = [array.result().read() for array in opened]
            arrays = [read.result() for read in reads]
        except ValueError as error:
            raise self._broken(str(error).splitlines()[0][:160]) from error
        return {name: self._checked(name, a) for name, a in zip(names, arrays)}

    def check(self, expected: Mapping[str, np.ndarray]) -> None:
        """Compares names, shapes and dtypes with what a program is about to restore.

        Raises:
          Mismatch: with the first difference.
        """
        for name in sorted(set(expected) | set(self.table)):
            ours = _describe(expected[name]) if name in expected else "nothing"
            entry = self.table.get(name)
            theirs = f"{entry['dtype']} {entry['shape']}" if entry else "nothing"
            if ours != theirs:
                raise Mismatch(
                    f"expected {ours} as {name!r} in checkpoint {self.number}, got "
                    f"{theirs}: it was written with other settings."
                )

    def _checked(self, name: str, array: np.ndarray) -> np.ndarray:
        entry = self.table[name]
        if _describe(array) != f"{entry['dtype']} {entry['shape']}":
            raise self._broken(f"{name} is {_describe(array)}")
        if _crc32(array) != entry["crc32"]:
            raise self._broken(f"the checksum of {name} differs")
        return array

    def _broken(self, why: str) -> BrokenCheckpoint:
        return BrokenCheckpoint(
            f"checkpoint {self.number} in {self.path.parent} is damaged: {why}."
        )


def write(
    folder: pathlib.Path,
    arrays: Mapping[str, np.ndarray],
    facts: Mapping[str, Any],
    score: float | None,
) -> None:
    """Writes all files of a checkpoint into a new folder, the commit mark last.

    Args:
      folder: where to; a reader must not know its name yet.
      arrays: numbers of any shape; they must not change meanwhile.
      facts: JSON values: versions, specs, counts.
      score: what tells the best checkpoint, the higher the better.

    Raises:
      OSError, ValueError: if it could not be written.
    """
    context = ts.Context(_CONTEXT)
    opened = {n: _create(folder / ARRAYS / n, a, context) for n, a in arrays.items()}
    writes = [opened[name].result().write(a) for name, a in arrays.items()]
    table = {name: _entry(a) for name, a in arrays.items()}
    manifest = {"format": FORMAT, "score": score, "facts": dict(facts), "arrays": table}
    for write in writes:
        write.result()
    content = json.dumps(manifest, indent=1).encode()
    (folder / MANIFEST).write_bytes(content)
    durable.sync_tree(folder)
    durable.write_bytes(folder / COMMIT, b"%08x\n" % zlib.crc32(content))
    durable.sync(folder)


def open_checkpoint(path: pathlib.Path) -> Checkpoint:
    """Returns a checkpoint after checking its commit mark and manifest.

    Raises:
      BrokenCheckpoint: if it is not what was committed.
      Mismatch: if another version of this module wrote it.
    """
    number = int(path.name)
    damaged = f"checkpoint {number} in {path.parent} is damaged:"
    try:
        content = (path / MANIFEST).read_bytes()
        commit = (path / COMMIT).read_bytes()
    except OSError as error:
        raise BrokenCheckpoint(f"{damaged} {error.strerror}.") from error
    if commit != b"%08x\n" % zlib.crc32(content):
        raise BrokenCheckpoint(f"{damaged} its manifest is not what was committed.")
    manifest = json.loads(content)
    if manifest["format"] != FORMAT:
        raise Mismatch(
            f"expected checkpoint format {FORMAT}, got {manifest['format']} in {path}."
        )
    return Checkpoint(
        number, path, manifest["facts"], manifest["score"], manifest["arrays"]
    )


def _create(path: pathlib.Path, array: np.ndarray, context: ts.Context) -> ts.Future:
    if array.dtype.kind not in "fiub":
        raise ValueError(f"expected an array of numbers, got {array.dtype} at {path}.")
    metadata = {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        # One file an array: it is read and written as a whole.
        "chunks": [max(1, n) for n in array.shape],
        # Weights do not compress; trying costs the learner CPU time.
        "compressor": None,
    }
    return ts.open({**_spec(path), "metadata": metadata}, create=True, context=context)


def _spec(path: pathlib.Path) -> dict[str, Any]:
    return {
        "driver": "zarr",
        "kvstore": {"driver": "file", "path": f"{os.path.abspath(path)}/"},
    }


def _entry(array: np.ndarray) -> dict[str, Any]:
    return {
        "dtype": array.dtype.str,
        "shape": list(array.shape),
        "crc32": _crc32(array),
    }


def _describe(array: np.ndarray) -> str:
    return f"{array.dtype.str} {list(array.shape)}"


def _crc32(array: np.ndarray) -> int:
    """Returns the checksum of an array's bytes; zlib frees the GIL meanwhile."""
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8))
