"""The checkpoints of a run: the last few and the best, saved in the background.

A checkpoint is written under a name that readers do not know, synced, committed and
renamed, so a kill at any moment leaves the ones before it untouched.
"""

from __future__ import annotations

import pathlib
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from acme_quant.records import checkpoint, durable
from acme_quant.records.checkpoint import BrokenCheckpoint, Checkpoint, Mismatch

_WRITING, _BROKEN = ".writing-", ".broken"
# Left free for everybody else who writes to the same disk: logs, CSV files.
RESERVE_BYTES = 64 << 20


class SaveFailed(RuntimeError):
    """A checkpoint could not be written; those before it are untouched."""


class NoCheckpoint(LookupError):
    """There is no such checkpoint."""


class Checkpoints:
    """The checkpoints of one folder: the last few, and the best."""

    def __init__(self, folder: pathlib.Path, keep: int = 3) -> None:
        """Keeps the newest `keep`, and the one with the highest score."""
        if keep < 1:
            raise ValueError(f"expected to keep at least 1 checkpoint, got {keep}.")
        self._folder = folder
        self._keep = keep

    def numbers(self) -> list[int]:
        """Returns the numbers of all checkpoints, oldest first."""
        if not self._folder.is_dir():
            return []
        return sorted(int(p.name) for p in self._folder.iterdir() if p.name.isdigit())

    def open(self, number: int) -> Checkpoint:
        """Returns a checkpoint after checking its commit mark and manifest.

        Raises:
          NoCheckpoint: if there is none of this number.
          BrokenCheckpoint: if it is not what was committed.
          Mismatch: if a later version of this module wrote it.
        """
        path = self._folder / f"{number:06d}"
        if not path.is_dir():
            known = ", ".join(map(str, self.numbers())) or "none"
            raise NoCheckpoint(
                f"expected a checkpoint of {self._folder} ({known}), got {number}."
            )
        return checkpoint.open_checkpoint(path)

    def newest_whole(self) -> tuple[Checkpoint, dict[str, np.ndarray], list[str]]:
        """Returns the newest checkpoint that is whole, and all its arrays.

        Returns:
          The checkpoint, its arrays, and one sentence for each newer one that is not.

        Raises:
          NoCheckpoint: if none is whole.
        """
        damaged = []
        for number in reversed(self.numbers()):
            try:
                found = self.open(number)
                return found, found.read(), damaged
            except BrokenCheckpoint as error:
                damaged.append(str(error))
        raise NoCheckpoint(
            " ".join([f"there is no whole checkpoint in {self._folder}.", *damaged])
        )

    def best(self) -> Checkpoint | None:
        """Returns the checkpoint with the highest score, None when none has one."""
        scored = [c for c in self._readable() if c.score is not None]
        return max(scored, key=lambda c: (c.score, c.number), default=None)

    def set_aside_after(self, number: int) -> None:
        """Renames the damaged checkpoints newer than `number`: they count no more."""
        for newer in (n for n in self.numbers() if n > number):
            path = self._folder / f"{newer:06d}"
            target = path.with_suffix(_BROKEN)
            shutil.rmtree(target, ignore_errors=True)
            durable.rename(path, target)

    def save(
        self,
        arrays: Mapping[str, np.ndarray],
        facts: Mapping[str, Any],
        score: float | None = None,
    ) -> Checkpoint:
        """Writes a checkpoint and deletes those that are kept no more.

        One process at a time may save into a folder.

        Args:
          arrays: numbers of any shape; they must not change meanwhile.
          facts: JSON values: versions, specs, counts.
          score: what `best` compares, the higher the better.

        Raises:
          SaveFailed: with the cause; the checkpoints before are untouched.
        """
        number = self._next_number()
        writing = self._folder / f"{_WRITING}{number:06d}"
        try:
            self._sweep()
            self._check_space(arrays)
            checkpoint.write(writing, arrays, facts, score)
            durable.rename(writing, self._folder / f"{number:06d}")
        except (OSError, ValueError) as error:
            shutil.rmtree(writing, ignore_errors=True)
            raise SaveFailed(f"checkpoint {number} was not saved: {error}") from error
        self._prune()
        return self.open(number)

    def _next_number(self) -> int:
        """Returns a number never given before, not even to a damaged one."""
        aside = [int(p.stem) for p in self._folder.glob(f"*{_BROKEN}")]
        return max([0, *self.numbers(), *aside]) + 1

    def _sweep(self) -> None:
        """Makes the folder and removes what a killed save left behind."""
        self._folder.mkdir(parents=True, exist_ok=True)
        for path in self._folder.glob(f"{_WRITING}*"):
            shutil.rmtree(path, ignore_errors=True)

    def _check_space(self, arrays: Mapping[str, np.ndarray]) -> None:
        need = sum(a.nbytes for a in arrays.values()) + RESERVE_BYTES
        free = shutil.disk_usage(self._folder).free
        if free < need:
            raise OSError(
                f"expected {need >> 20} MB free in {self._folder}, got {free >> 20} MB"
            )

    def _prune(self) -> None:
        best = self.best()
        for number in self.numbers()[: -self._keep]:
            if best is None or number != best.number:
                path = self._folder / f"{number:06d}"
                # Gone by name at once: a kill meanwhile must not leave half of it.
                doomed = self._folder / f"{_WRITING}old-{number:06d}"
                path.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)

    def _readable(self) -> list[Checkpoint]:
        readable = []
        for number in self.numbers():
            try:
                readable.append(self.open(number))
            except (BrokenCheckpoint, Mismatch, NoCheckpoint):
                continue
        return readable


class BackgroundSaver:
    """Saves in a thread of its own; a save that fails is a warning."""

    def __init__(self, checkpoints: Checkpoints, report: Callable[[str], None]) -> None:
        """Saves into `checkpoints`; `report` gets one sentence for each save."""
        self._checkpoints = checkpoints
        self._report = report
        self._thread: threading.Thread | None = None
        self.saves = 0
        self.failures = 0

    @property
    def busy(self) -> bool:
        """Whether a save is under way."""
        return self._thread is not None and self._thread.is_alive()

    def save(
        self,
        arrays: Mapping[str, np.ndarray],
        make_facts: Callable[[], tuple[Mapping[str, Any], float | None]],
    ) -> bool:
        """Starts to save, unless the last save is not done yet.

        Args:
          arrays: copies that nobody changes.
          make_facts: returns facts and score; it is called in the background, since it
            may ask peers that are slow.

        Returns:
          Whether it was started.
        """
        if self.busy:
            return False
        self._thread = threading.Thread(
            target=self._save, args=(arrays, make_facts), name="save", daemon=True
        )
        self._thread.start()
        return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits for the save under way; returns whether it is done."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return not self.busy

    def _save(
        self,
        arrays: Mapping[str, np.ndarray],
        make_facts: Callable[[], tuple[Mapping[str, Any], float | None]],
    ) -> None:
        began = time.monotonic()
        try:
            saved = self._checkpoints.save(arrays, *make_facts())
        except Exception as error:  # Whatever it is, training goes on.
            self.failures += 1
            self._report(f"warning: {error}")
            return
        self.saves += 1
        megabytes = sum(a.nbytes for a in arrays.values()) / 1e6
        seconds = time.monotonic() - began
        self._report(
            f"checkpoint {saved.number} saved: {megabytes:.1f} MB in {seconds:.1f} s"
        )
