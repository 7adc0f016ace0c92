"""The life of one run, seen from the launcher: start, watch, end, summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from concurrent import futures

from acme_quant.launch import nodes
from acme_quant.launch.nodes.context import Context
from acme_quant.launch.running import layout as layouts
from acme_quant.launch.running import progress, signals, summary, temporary
from acme_quant.launch.running.launcher_log import LauncherLog
from acme_quant.launch.running.layout import Layout
from acme_quant.launch.running.overdue import Overdue
from acme_quant.launch.settings.config import Run
from acme_quant.records import csv_rows, energy
from acme_quant.records.say import say

POLL_S = 0.25
# For an evaluation, where a step may take for ever.
PATIENCE_S = 60.0


class Watch:
    """Asks how far the run is, and shows it."""

    def __init__(
        self, run: Run, ask: Callable[[], futures.Future], started: float
    ) -> None:
        """Initializes the watch.

        Args:
          run: the run's configuration.
          ask: `Coordinator.get_status`, answered some time later.
          started: time.time() at launch.
        """
        self._run = run
        self._ask = ask
        self._started = started
        self._answer: futures.Future | None = None
        self._progress = progress.Progress(start_steps=run.start.actor_steps)
        self._log = LauncherLog(run.workdir)
        # A hanging step ends the evaluator, which then has one more try.
        patience_s = 2 * (run.config.step_timeout_s or PATIENCE_S)
        self._overdue = Overdue(
            run.config.evaluate_every, patience_s, run.start.learner_steps
        )
        self._ended: float | None = None
        self.counts: dict[str, float] = {}

    def poll(self) -> bool:
        """Shows the newest status; returns whether the steps are done.

        The question is asked without waiting: a coordinator that is still starting, or
        was stopped, must not keep the launcher from looking after the nodes.
        """
        if self._answer is None:
            self._answer = self._ask()
        if not self._answer.done():
            return False
        answer, self._answer = self._answer, None
        if answer.exception() is not None:
            return False
        status = answer.result()
        self.counts = status["counts"]
        self._progress.show(self.status())
        return status["done"]

    def status(self) -> progress.Status:
        """Returns the state of the run as its files and the counter tell it."""
        row = csv_rows.last_row(self._run.workdir / "csv" / "evaluator.csv")
        actor = csv_rows.last_row(self._run.workdir / "csv" / "actor_0.csv")
        learned = int(self.counts.get("learner_steps", 0))
        sentence = self._overdue.look(learned, _int(row.get("learner_steps")) or 0)
        if sentence:
            self._log.tell(sentence)
        return progress.Status(
            wall_s=(self._ended or time.time()) - self._started,
            actor_steps=int(self.counts.get("actor_steps", 0)),
            max_actor_steps=self._run.config.max_actor_steps,
            learner_steps=learned,
            policy_version=_int(actor.get("policy_version")),
            evaluation_return=_float(row.get("episode_return")),
            failed_episodes=int(self.counts.get("actor_failed_episodes", 0)),
            overdue_evaluations=self._overdue.missing,
        )

    def speed(self) -> float:
        """Returns environment steps a second since the first step."""
        return self._progress.speed(self.status())

    def close(self) -> None:
        """Ends the progress line, and the time that counts as the run's."""
        self._ended = time.time()
        self._progress.close()


def launch(context: Context) -> int:
    """Runs a checked request to its end and prints the summary.

    Returns:
      The command's exit code.
    """
    run, started = context.run, context.started
    say(f"acme-quant: files in {run.workdir.resolve()}")
    summary.listen_for_losses()
    layout = layouts.start(context)
    # After the nodes: their processes are not forked while a thread imports.
    meter = energy.EnergyMeter(
        run.workdir / "energy.csv",
        run.config.country_iso_code,
        started=started,
        roles=nodes.ROLES,
    )
    meter.start(layout.pids)
    watch = Watch(run, layout.ask, started)
    code = _see_to_its_end(layout, watch)
    result = summary.write(run, watch.status(), watch.speed(), meter.stop(), code)
    say(summary.line(result))
    # Threads blocked in C++ would keep the interpreter from leaving, and a signal while
    # it tidies up would take the exit code of a run that is done.
    temporary.leave(result["exit_code"])


def _see_to_its_end(layout: Layout, watch: Watch) -> int:
    """Watches until the steps are done, a node fails or a signal comes."""
    code, reason = 0, ""
    signals.listen()
    try:
        while not signals.asked() and not watch.poll():
            layout.check()
            time.sleep(POLL_S)
    except Exception as error:  # A node in this process raises whatever it likes.
        code, reason = 1, str(error)
    # A node may die of the signal that its launcher has got too.
    asked = signals.asked()
    if asked is not None:
        code, reason = asked.code, f"ended by {asked.name}"
    watch.close()
    # A last evaluation is worth waiting for when the run has reached its steps only.
    layout.stop(early=bool(reason))
    if reason:
        say(f"acme-quant train: {reason}", sys.stderr)
    return code


def _int(text: str | None) -> int | None:
    return int(float(text)) if text else None


def _float(text: str | None) -> float | None:
    return float(text) if text else None
