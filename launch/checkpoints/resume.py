"""Where a run starts: at nothing, or at the newest whole checkpoint of its folder."""

from __future__ import annotations

import csv
import dataclasses
import io
import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from acme_quant.launch.checkpoints import replay_saver, saving
from acme_quant.launch.settings import provenance
from acme_quant.launch.settings.config import Run, RunConfig, Start, UsageError
from acme_quant.records import csv_rows, durable, event_file
from acme_quant.records.checkpoint import Checkpoint, Mismatch
from acme_quant.records.checkpoints import NoCheckpoint

if TYPE_CHECKING:
    from acme_quant.policy.graph import Graph

# Everything that a run writes; a run that starts anew moves it out of the way.
OUTPUTS = ("checkpoints", "csv", "logs", "tensorboard", "replay", "replay-damaged")
OUTPUT_FILES = ("config.json", "summary.json", "policy.aq", "energy.csv")
# The column that tells which rows a checkpoint has; the first one that a file has.
STEPS = ("learner_steps", "wall_s")
ACTOR_STEPS = ("actor_steps", "wall_s")
# Settings that a checkpoint cannot be carried across.
FIXED = ("agent", "env")


def resume(run: Run, graph: Graph | None) -> tuple[Run, list[str]]:
    """Returns the run with its start, and sentences for a person.

    Files of rows and TensorBoard's are cut back to the checkpoint, so that they go on
    without a gap or a double. Without a checkpoint, or with --fresh, what is in the
    folder is moved aside.

    Raises:
      UsageError: if the checkpoint belongs to another agent, environment or policy.
    """
    if run.config.fresh:
        return run, _move_aside(run.workdir)
    checkpoints = saving.checkpoints_of(run)
    try:
        found, _, damaged = checkpoints.newest_whole()
        _check(found, run, graph)
    except NoCheckpoint as error:
        damaged = [str(error)] if checkpoints.numbers() else []
        return run, damaged + _move_aside(run.workdir)
    except Mismatch as error:
        raise UsageError(f"{error} Start anew with --fresh.") from error
    checkpoints.set_aside_after(found.number)
    start = _start(found)
    newest = _cut_rows(run.workdir / "csv", start)
    _cut_events(run.workdir / "tensorboard", start)
    start = dataclasses.replace(
        start,
        policy_version=max(start.policy_version, newest),
        # Energy and time that went into lost steps were spent all the same.
        wall_s=max(start.wall_s, _metered_s(run.workdir / "energy.csv")),
    )
    return dataclasses.replace(run, start=start), [*damaged, *_describe(found, run)]


def _check(found: Checkpoint, run: Run, graph: Graph | None) -> None:
    settings = found.facts["settings"]
    for name in FIXED:
        theirs = settings.get(name, getattr(RunConfig, name))
        if theirs != getattr(run.config, name):
            raise Mismatch(
                f"expected --{name}={theirs}, which the checkpoints in "
                f"{run.workdir} are of, got {getattr(run.config, name)}."
            )
    if graph is None:
        return
    ours = [list(shape) for shape in graph.variable_shapes]
    theirs = [found.table[name]["shape"] for name in found.facts["policy"]]
    if ours != theirs:
        raise Mismatch(
            f"expected a policy of shapes {theirs}, which checkpoint {found.number} "
            f"has, got {ours}."
        )


def _start(found: Checkpoint) -> Start:
    return Start(
        checkpoint=found.number,
        counts=found.facts["counts"],
        deposits=found.facts["deposits"],
        policy_version=found.facts["policy_version"],
        wall_s=found.facts["wall_s"],
    )


def _describe(found: Checkpoint, run: Run) -> list[str]:
    facts, counts = found.facts, found.facts["counts"]
    size = sum(_nbytes(entry) for entry in found.table.values()) / 1e6
    sentences = [
        f"resumes from checkpoint {found.number}: {counts.get('actor_steps', 0):.0f} "
        f"actor steps, {counts['learner_steps']} learner steps, policy version "
        f"{facts['policy_version']}",
        f"came back: networks, optimizers and counts ({len(found.table)} arrays, "
        f"{size:.1f} MB), actors' random states; did not: the episodes that were "
        f"under way; {replay_saver.describe(facts.get('replay', {}))}",
    ]
    before, now = facts["settings"], dataclasses.asdict(run.config)
    now |= dataclasses.asdict(run.agent_config)
    changed = [
        f"{name} {before[name]} -> {value}"
        for name, value in now.items()
        if name in before and before[name] != _plain(value)
    ]
    if changed:
        sentences.append(f"changed: {', '.join(changed)}")
    versions = facts.get("versions", {})
    other = provenance.changed_versions(versions, saving.versions())
    return [*sentences, other] if other else sentences


def _nbytes(entry: dict[str, Any]) -> int:
    size = int(entry["dtype"][2:])
    for extent in entry["shape"]:
        size *= extent
    return size


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


def _metered_s(path: pathlib.Path) -> float:
    """Returns the last time in the file of energy, 0 without one."""
    try:
        with path.open(newline="") as file:
            return max((float(r["wall_s"]) for r in csv.DictReader(file)), default=0.0)
    except (OSError, KeyError, ValueError):
        return 0.0


def _cut_rows(folder: pathlib.Path, start: Start) -> int:
    """Drops the rows after the checkpoint, and gives columns their names of today.

    Returns:
      The newest policy version left.
    """
    newest = 0
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="") as file:
            old, *rows = list(csv.reader(file)) or [[]]
        header = csv_rows.names_of(old)
        kept = [row for row in rows if _is_before(row, header, path.stem, start)]
        if len(kept) < len(rows) or header != old:
            durable.replace_bytes(path, _to_csv([header, *kept]))
        if "policy_version" in header:
            column = header.index("policy_version")
            newest = max([newest, *(int(float(r[column] or 0)) for r in kept)])
    return newest


def _cut_events(folder: pathlib.Path, start: Start) -> None:
    """Drops TensorBoard's points after the checkpoint: a curve must not run back."""
    for path in sorted(folder.glob(f"*/{event_file.PATTERN}")):
        is_actor = path.parent.name.startswith("actor")
        event_file.cut(path, start.actor_steps if is_actor else start.learner_steps)


def _is_before(
    row: Sequence[str], header: Sequence[str], node: str, start: Start
) -> bool:
    """Returns whether a row is whole, and of a step that the checkpoint has."""
    if len(row) != len(header):
        return False
    names = ACTOR_STEPS if node.startswith("actor") else STEPS
    name = next((n for n in names if n in header), None)
    if name is None:
        return True
    limits = {"actor_steps": start.actor_steps, "wall_s": start.wall_s}
    return float(row[header.index(name)] or 0) <= limits.get(name, start.learner_steps)


def _to_csv(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(row for row in rows if row)
    return text.getvalue().encode()


def _move_aside(workdir: pathlib.Path) -> list[str]:
    """Moves an earlier run's files into a folder of their own; deletes nothing."""
    there = [p for n in (*OUTPUTS, *OUTPUT_FILES) if (p := workdir / n).exists()]
    if not there:
        return []
    numbers = [int(p.name.split("-")[1]) for p in workdir.glob("previous-*")]
    target = workdir / f"previous-{max([0, *numbers]) + 1}"
    target.mkdir()
    for path in there:
        path.rename(target / path.name)
    return [f"starts anew; what was in the folder is in {target}"]
