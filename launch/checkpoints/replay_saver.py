"""The replay's part of a checkpoint: Reverb's own, bounded in size and time."""

from __future__ import annotations

import pathlib
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from acme_quant.launch.settings import memory
from acme_quant.launch.settings.config import Run
from acme_quant.records.say import say

if TYPE_CHECKING:
    import reverb
    from acme import specs

REPLAY = "replay"
# Of a checkpoint that Reverb has written to its end.
_DONE = "DONE"
TIMEOUT_S = 60.0


def folder_of(run: Run) -> pathlib.Path | None:
    """Returns where the replay's checkpoints are, None for a run without."""
    # Reverb splits it at nothing but slashes; it must not depend on where a node runs.
    return run.workdir.absolute() / REPLAY if run.config.checkpoint_replay else None


def serve(
    make_tables: Callable[[], Sequence[reverb.Table]],
    port: int,
    folder: pathlib.Path | None,
) -> reverb.Server:
    """Returns a server of what the newest whole checkpoint has, of nothing without.

    A damaged checkpoint is renamed, and so is kept but not loaded again.

    Args:
      make_tables: returns the tables, empty.
      port: where to listen.
      folder: of Reverb's checkpoints; None for a replay that is not saved.
    """
    import reverb

    if folder is None:
        return reverb.Server(make_tables(), port)
    while True:
        keeper = reverb.checkpointers.DefaultCheckpointer(str(folder))
        try:
            server = reverb.Server(make_tables(), port, checkpointer=keeper)
        except RuntimeError as error:
            newest = max(folder.glob(f"*/{_DONE}"), default=None)
            if newest is None:
                raise
            target = folder.with_name(f"{folder.name}-damaged") / newest.parent.name
            target.parent.mkdir(exist_ok=True)
            newest.parent.rename(target)
            say(f"{newest.parent} is damaged and now at {target}: {error}")
            continue
        tables = reverb.Client(f"localhost:{port}").server_info(int(TIMEOUT_S))
        items = sum(table.current_size for table in tables.values())
        say(f"replay came back with {items} items" if items else "replay fills anew")
        return server


class ReplaySaver:
    """Asks the replay server to save itself."""

    def __init__(
        self, run: Run, spec: specs.EnvironmentSpec, client: reverb.Client
    ) -> None:
        """Saves what `client` serves, if the run wants it."""
        self._wanted = run.config.checkpoint_replay
        self._most_bytes = run.config.max_replay_checkpoint_mb * 10**6
        self._item_bytes = memory.item_bytes(spec)
        self._client = client

    def save(self) -> dict[str, Any]:
        """Saves the replay; nobody writes to it or samples from it meanwhile.

        Returns:
          What became of it, JSON values: its number of `items`, or `skipped` and why.
        """
        if not self._wanted:
            return {"skipped": "not asked for (--checkpoint_replay)"}
        tables = self._client.server_info(timeout=int(TIMEOUT_S)).values()
        items = sum(table.current_size for table in tables)
        need = items * self._item_bytes
        if need > self._most_bytes:
            return {"skipped": f"it takes {need / 1e6:.0f} MB"}
        failures: list[BaseException] = []
        thread = threading.Thread(target=self._save, args=[failures], daemon=True)
        thread.start()
        thread.join(TIMEOUT_S)
        if thread.is_alive():
            return {"skipped": f"it was not saved within {TIMEOUT_S:.0f} s"}
        return {"skipped": str(failures[0])} if failures else {"items": items}

    def _save(self, failures: list[BaseException]) -> None:
        try:
            self._client.checkpoint()
        except Exception as error:
            failures.append(error)


def describe(facts: dict[str, Any]) -> str:
    """Returns a clause on what a resumed run finds in its replay."""
    if "items" in facts:
        return f"replay was saved with {facts['items']} items (see logs/replay.log)"
    return f"replay fills anew: {facts.get('skipped', 'not saved')}"
