"""What the launcher has to say of a run's nodes: `logs/launcher.log`."""

from __future__ import annotations

import pathlib
import time

from acme_quant.records.say import say
from acme_quant.records.whole_records import WholeRecords

FILE = "launcher.log"


class LauncherLog:
    """The file, and the console for what a person should see."""

    def __init__(self, workdir: pathlib.Path) -> None:
        """Appends to the log of a run's folder."""
        folder = workdir / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        self._file = WholeRecords(folder / FILE)

    def note(self, sentence: str) -> None:
        """Writes a line with its time."""
        moment = time.strftime("%Y-%m-%d %H:%M:%S")
        self._file.append(f"{moment} acme-quant: {sentence}\n".encode())

    def tell(self, sentence: str) -> None:
        """Writes a line and prints it."""
        say(f"acme-quant: {sentence}")
        self.note(sentence)
