"""The report of a comparison: its folder's runs become numbers, figures and a page.

DIR/comparison.json              what was compared, and how
DIR/runs/ARM/seed_N/             one run each, as `acme-quant train` left it
DIR/report/summary.json          every number of the page
DIR/report/csv/ARM_seed_N.csv    the curve of each run
DIR/report/*.png, report.html    the page holds the figures: one file to pass on
"""

from __future__ import annotations

import csv
import json
import pathlib
from collections.abc import Mapping
from typing import Any

from acme_quant.launch.reports import figures, findings, page, runs

FORMAT = 1
COMPARISON_FILE = "comparison.json"
_COLUMNS = ("wall_s", "actor_steps", "learner_steps", "kwh", "episode_return")


class ReportError(ValueError):
    """The folder is no comparison that this version can read."""


def read_comparison(folder: pathlib.Path) -> dict[str, Any]:
    """Returns the description of a comparison.

    Raises:
      ReportError: if there is none, or it is of another version.
    """
    path = folder / COMPARISON_FILE
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise ReportError(
            f"expected a comparison in {folder}, got no {COMPARISON_FILE}."
        ) from error
    except ValueError as error:
        raise ReportError(f"expected JSON in {path}, got something else.") from error
    version = found.get("format") if isinstance(found, dict) else None
    if version != FORMAT:
        raise ReportError(
            f"expected a comparison folder of format {FORMAT}, got {version} in "
            f"{path}: it was written by another version of acme_quant."
        )
    return found


def run_folder(folder: pathlib.Path, arm: str, seed: int) -> pathlib.Path:
    """Returns the working folder of one run."""
    return folder / "runs" / arm / f"seed_{seed}"


def read(
    folder: pathlib.Path, level: float | None = None
) -> tuple[dict[str, Any], list[runs.Run], findings.Findings]:
    """Returns what was compared, the runs there are, and their findings.

    Args:
      folder: the comparison.
      level: a return to measure the time to, instead of shares of float32's best.

    Raises:
      ReportError: see `read_comparison`.
    """
    about = read_comparison(folder)
    arms, seeds = list(about["arms"]), about["seeds"]
    places = {(a, s): run_folder(folder, a, s) for s in seeds for a in arms}
    found_runs = [
        runs.read(place, arm, seed)
        for (arm, seed), place in places.items()
        if place.is_dir()
    ]
    return about, found_runs, findings.findings(arms, seeds, found_runs, level)


def write(folder: pathlib.Path, level: float | None = None) -> findings.Findings:
    """Writes the report of a comparison's folder and returns its findings.

    Args:
      folder: the comparison.
      level: see `read`.

    Raises:
      ReportError: see `read_comparison`.
    """
    about, found_runs, found = read(folder, level)
    target = folder / "report"
    target.mkdir(parents=True, exist_ok=True)
    pictures = figures.draw(target, found_runs, found)
    for run in found_runs:
        _write_curve(target / "csv" / f"{run.arm}_seed_{run.seed}.csv", run)
    (target / "summary.json").write_text(
        json.dumps({**found.to_json(), "about": about}, indent=2) + "\n"
    )
    text = page.render(_title(about), found, pictures, about)
    (target / "report.html").write_text(text)
    return found


def _title(about: Mapping[str, Any]) -> str:
    what = about.get("title") or "comparison"
    return f"{' against '.join(about['arms'])}: {what}"


def _write_curve(path: pathlib.Path, run: runs.Run) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        table = run.evaluations
        for row in range(len(table)):
            writer.writerow([f"{table[name][row]:.9g}" for name in _COLUMNS])
