"""What a run came to: one line for a person, `summary.json` for programs."""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
from typing import Any

from acme_quant.launch.checkpoints import saving
from acme_quant.launch.nodes.quantizer import POLICY_FILE
from acme_quant.launch.running.progress import Status
from acme_quant.launch.settings.config import Run
from acme_quant.records import durable, event_file, whole_records
from acme_quant.records.checkpoint import BrokenCheckpoint, Mismatch
from acme_quant.records.checkpoints import NoCheckpoint
from acme_quant.records.energy import Energy

FILE = "summary.json"
# Share of the limit that a run may overstep without a word: actors tell the counter of
# their steps twice a second, and the launcher hears of it as often.
MOST_PAST = 0.05
_FAILED = 1


def listen_for_losses() -> None:
    """Lets the nodes that are started from now on tell what they could not write."""
    try:
        os.environ[whole_records.LOSSES] = tempfile.mkdtemp(prefix="losses-")
    except OSError:  # What the launcher sees by itself is told all the same.
        os.environ.pop(whole_records.LOSSES, None)


def write(
    run: Run, status: Status, steps_per_s: float, energy: Energy, exit_code: int
) -> dict[str, Any]:
    """Writes `summary.json` into the run's folder and returns its content.

    A run whose end is not on the disk has failed, whatever it was before: its exit code
    becomes 1 if it was 0. Lost rows alone are told.
    """
    lost = _lost()
    not_saved = [name for name in lost if name == POLICY_FILE]
    result = {
        "exit_code": exit_code,
        "wall_s": round(status.wall_s, 1),
        "actor_steps": status.actor_steps,
        "max_actor_steps": status.max_actor_steps,
        "learner_steps": status.learner_steps,
        "steps_per_s": round(steps_per_s, 1),
        "policy_version": status.policy_version,
        "evaluation_return": status.evaluation_return,
        "failed_episodes": status.failed_episodes,
        "overdue_evaluations": status.overdue_evaluations,
        "kwh": energy.kwh,
        "kg_co2": energy.kg_co2,
        "energy_method": energy.method,
        "energy_missing": list(energy.missing),
        "energy_shares": dict(energy.shares),
        "workdir": str(run.workdir.resolve()),
        "not_saved": not_saved,
        "lost_rows": {n: count for n, count in lost.items() if n != POLICY_FILE},
    }
    not_saved += _unsaved_learning(run, status)
    if not_saved:
        result["exit_code"] = exit_code or _FAILED
    try:
        content = json.dumps(result, indent=2) + "\n"
        durable.replace_bytes(run.workdir / FILE, content.encode())
    except OSError as error:
        not_saved.append(f"{FILE} ({error.strerror})")
        result["exit_code"] = exit_code or _FAILED
    return result


def line(result: dict[str, Any]) -> str:
    """Returns the summary as one line; what is not known is called unknown."""
    value, kwh = result["evaluation_return"], result["kwh"]
    parts = [
        "done" if result["exit_code"] == 0 else "ended early",
        "return " + ("unknown" if value is None else f"{value:.1f}"),
        f"{result['actor_steps']} steps in {result['wall_s']:.0f} s",
        f"{result['steps_per_s']:.0f} steps/s",
        f"{result['learner_steps']} learner steps"
        if result["learner_steps"]
        else "nothing learnt",
        "energy unknown" if kwh is None else f"{1000 * kwh:.2f} Wh",
        f"files in {result['workdir']}",
    ]
    past = result["actor_steps"] - result["max_actor_steps"]
    if past > MOST_PAST * result["max_actor_steps"]:
        parts.insert(3, f"{past} steps past --max_actor_steps, as actors count apart")
    if overdue := result["overdue_evaluations"]:
        parts.insert(2, f"{overdue} evaluations overdue")
    if result["lost_rows"]:
        lost = (f"{count} of {name}" for name, count in result["lost_rows"].items())
        parts.insert(1, f"rows lost: {', '.join(lost)}")
    if result["not_saved"]:
        parts[0] = f"not saved: {', '.join(result['not_saved'])}"
    return " | ".join(parts)


def _unsaved_learning(run: Run, status: Status) -> list[str]:
    """Returns what the newest checkpoint has not, if the run saves any."""
    if not run.config.checkpoint_every_s or not status.learner_steps:
        return []
    checkpoints = saving.checkpoints_of(run)
    try:
        facts = checkpoints.open(max(checkpoints.numbers(), default=0)).facts
    except (NoCheckpoint, BrokenCheckpoint, Mismatch):
        return ["all that was learnt"]
    steps = facts["counts"]["learner_steps"]
    # The counter may be a step ahead of the learner, whose last save comes last.
    if steps >= status.learner_steps or facts["wall_s"] >= status.wall_s:
        return []
    return [f"what was learnt after learner step {steps}"]


def _lost() -> dict[str, int]:
    folder = os.environ.get(whole_records.LOSSES)
    if folder is None:
        return {}
    found: dict[str, int] = {}
    for name, count in whole_records.lost_records(pathlib.Path(folder)).items():
        name = "TensorBoard" if event_file.is_one(name) else name
        found[name] = found.get(name, 0) + count
    return found
