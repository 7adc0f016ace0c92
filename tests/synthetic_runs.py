"""Run folders of known curves, as `acme-quant train` would leave them."""

from __future__ import annotations

import csv
import json
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

from acme_quant import cpu_times, energy
from acme_quant.launch import report

LEARNER_STEPS = 1000
TOP = 1000.0
EVERY = 50
STAGE_US = {"environment": 200.0, "inference": 100.0, "adder": 50.0}


def write_csv(path: pathlib.Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = list(rows)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_run(
    folder: pathlib.Path,
    steps_per_s: float = 10.0,
    *,
    top: float = TOP,
    start: float = 0.0,
    startup_s: float = 10.0,
    watts: float = 36.0,
    actor: str = "engine",
    exit_code: int = 0,
) -> None:
    """Writes a run whose return rises evenly from `start` to `top`.

    Learner step n is done `startup_s` + n / `steps_per_s` seconds after launch; the
    machine takes `watts` from the launch on.
    """
    end = startup_s + LEARNER_STEPS / steps_per_s
    steps = range(0, LEARNER_STEPS + 1, EVERY)

    def wall(n: int) -> float:
        return startup_s + n / steps_per_s

    learner = [
        {"wall_s": wall(n), "actor_steps": 4 * n, "learner_steps": n} for n in steps
    ]
    evaluations = [
        {
            "wall_s": wall(n),
            "learner_steps": n,
            "actor_steps": 4 * n,
            "episode_return": start + (top - start) * n / LEARNER_STEPS,
        }
        for n in steps
    ]
    write_csv(folder / "csv" / "learner.csv", learner)
    write_csv(folder / "csv" / "evaluator.csv", evaluations)
    _write_actor(folder, wall, actor)
    if actor == "engine":
        write_csv(
            folder / "csv" / "quantizer.csv",
            [
                {
                    "wall_s": end,
                    "policy_bytes": 1000,
                    "shared_memory_pulls": 20,
                    "bytes_served": 500,
                }
            ],
        )
    write_energy(folder / "energy.csv", watts, end)
    _write_json(folder, end, actor, exit_code)


def _write_actor(folder: pathlib.Path, wall: Any, actor: str) -> None:
    row = {"wall_s": wall(500), "episode_length": 100, "episode_return": 1.0}
    if actor == "engine":
        row["staleness_learner_steps"] = 30
        row |= {f"us_{stage}": us for stage, us in STAGE_US.items()}
    write_csv(folder / "csv" / "actor_0.csv", [row])


def write_energy(path: pathlib.Path, watts: float, end: float) -> None:
    rows = []
    for wall in (end / 2, end + 5.0):
        kwh = watts * wall / 3.6e6
        rows.append(
            {
                **dict.fromkeys(energy.FIELDS, ""),
                "wall_s": wall,
                "metered_s": wall,
                "kwh": kwh,
                "kg_co2": 0.5 * kwh,
                "method": "CPU RAPL",
                "missing": "fans",
                "final": int(wall > end),
                **{f"kwh_{role}": 0.0 for role in cpu_times.ROLES},
                "kwh_actor": 0.75 * kwh,
                "kwh_learner": 0.25 * kwh,
            }
        )
    write_csv(path, rows)


def _write_json(folder: pathlib.Path, end: float, actor: str, exit_code: int) -> None:
    (folder / "config.json").write_text(json.dumps({"actor": actor}))
    summary = {
        "exit_code": exit_code,
        "wall_s": end + 5.0,
        "actor_steps": 4 * LEARNER_STEPS,
        "learner_steps": LEARNER_STEPS,
    }
    (folder / "summary.json").write_text(json.dumps(summary))


def write_comparison(
    folder: pathlib.Path, arms: Iterable[str], seeds: Iterable[int], **changes: Any
) -> None:
    """Writes the description of a comparison without its runs."""
    about = {
        "format": report.FORMAT,
        "title": "synthetic runs",
        "arms": {arm: [f"--quantizer={arm}"] for arm in arms},
        "seeds": list(seeds),
        **changes,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / report.COMPARISON_FILE).write_text(json.dumps(about))
