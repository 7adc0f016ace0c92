"""What one finished run left in its folder, as arrays and numbers.

Reading never raises: what is missing, broken or of another version becomes a sentence
in `problems` and an empty curve or None, so that a report can say it.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from acme_quant.acting import timing
from acme_quant.launch.nodes import ENERGY_ROLES
from acme_quant.launch.settings.actors import ACTORS
from acme_quant.records import csv_rows

ENERGY_FILE = "energy.csv"


@dataclasses.dataclass(frozen=True)
class Table:
    """The numbers of a CSV file: column name -> float64 [rows], NaN where empty."""

    columns: Mapping[str, np.ndarray]

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(next(iter(self.columns.values()), ()))

    def __getitem__(self, name: str) -> np.ndarray:
        """Returns a column; NaN when the file has none of that name."""
        return self.columns.get(name, np.full(len(self), np.nan))

    def rows(self, first: int) -> Table:
        """Returns the rows from number `first` on."""
        return Table({name: v[first:] for name, v in self.columns.items()})

    def last(self, name: str) -> float | None:
        """Returns the last number of a column, None when there is none."""
        values = self[name][~np.isnan(self[name])]
        return float(values[-1]) if len(values) else None

    def at(self, name: str, over: str, where: float) -> float | None:
        """Returns column `name` where column `over` reaches `where`.

        Rows are joined by straight lines. None outside of the file's rows: nothing is
        extrapolated.
        """
        x, y = self[over], self[name]
        known = ~(np.isnan(x) | np.isnan(y))
        x, y = x[known], y[known]
        if not len(x) or not x[0] <= where <= x[-1]:
            return None
        return float(np.interp(where, x, y))


@dataclasses.dataclass(frozen=True)
class Run:
    """One run's files.

    Attributes:
      arm: what was varied, such as `int8`.
      seed: the run's seed.
      finished: whether it reached its steps; others are in no mean.
      config: the resolved flags.
      summary: the launcher's summary.
      evaluations: wall_s, actor_steps, learner_steps, kwh, episode_return, staleness.
      learner: wall_s, learner_steps, ...
      energy: wall_s, kwh, kg_co2, kwh_<role>.
      actors: the rows of all actors, one after another, without each one's first.
      quantizer: counts of the publisher.
      energy_method: how energy was metered, in words.
      energy_missing: what is not in it, in words.
      problems: what is wrong with the folder, one sentence each.
    """

    arm: str
    seed: int
    finished: bool
    config: Mapping[str, Any]
    summary: Mapping[str, Any]
    evaluations: Table
    learner: Table
    energy: Table
    actors: Table
    quantizer: Table
    energy_method: str
    energy_missing: str
    problems: tuple[str, ...]

    @property
    def name(self) -> str:
        """Arm and seed, for sentences."""
        return f"{self.arm}, seed {self.seed}"

    def stage_us(self) -> dict[str, float]:
        """Returns stage -> microseconds per environment step, over logged episodes.

        The first episode of an actor holds its wait for the start, and is left out
        when there are others.
        """
        weights = self.actors["episode_length"]
        result = {}
        for stage in timing.STAGES:
            values = self.actors[f"us_{stage}"]
            known = ~(np.isnan(values) | np.isnan(weights))
            if weights[known].sum() > 0:
                result[stage] = float(np.average(values[known], weights=weights[known]))
        return result

    def staleness(self) -> float | None:
        """Returns the mean age of the actors' policy in learner steps."""
        return _mean(self.actors["staleness_learner_steps"])

    def bytes_sent(self) -> float | None:
        """Returns the bytes of all policies that clients took from the quantizer."""
        pulls = self.quantizer.last("shared_memory_pulls")
        size = self.quantizer.last("policy_bytes")
        served = self.quantizer.last("bytes_served")
        if pulls is None or size is None or served is None:
            return None
        return pulls * size + served

    def steps_per_s(self) -> float | None:
        """Returns environment steps a second, from the first learner row to the end."""
        wall, steps = self.learner["wall_s"], self.learner["actor_steps"]
        known = ~(np.isnan(wall) | np.isnan(steps))
        wall, steps = wall[known], steps[known]
        if len(wall) < 2 or wall[-1] <= wall[0]:
            return None
        return float((steps[-1] - steps[0]) / (wall[-1] - wall[0]))

    def share_of_others(self) -> float | None:
        """Returns the part of the machine's CPU time that other programs took."""
        by_role = self.kwh_by_role()
        whole = sum(by_role.values())
        return by_role.get("other", 0.0) / whole if whole else None

    def kwh_by_role(self) -> dict[str, float]:
        """Returns role -> kilowatt hours of the whole run."""
        found = {role: self.energy.last(f"kwh_{role}") for role in ENERGY_ROLES}
        return {role: kwh for role, kwh in found.items() if kwh is not None}


def read(folder: pathlib.Path, arm: str, seed: int) -> Run:
    """Reads the folder of one run; never raises."""
    reader = _Reader(folder)
    config, summary = reader.json("config.json"), reader.json("summary.json")
    meter = _energy_rows(folder / ENERGY_FILE)
    if not len(meter.columns):
        reader.problems.append(f"no {ENERGY_FILE}: its energy is unknown")
    elif meter.last("final") != 1.0:
        reader.problems.append("its energy is partial: the meter was not stopped")
    evaluations = _with_kwh(
        reader.csv("csv/evaluator.csv", ("wall_s", "learner_steps", "episode_return")),
        meter,
    )
    learner = reader.csv("csv/learner.csv", ("wall_s", "learner_steps"))
    method, missing = _energy_words(folder / ENERGY_FILE)
    own_actor = ACTORS[config.get("actor", "engine")].payload
    run = Run(
        arm=arm,
        seed=seed,
        finished=summary.get("exit_code") == 0 and len(learner) > 0,
        config=config,
        summary=summary,
        evaluations=evaluations,
        learner=learner,
        energy=meter,
        actors=reader.actors(own_actor),
        quantizer=reader.csv("csv/quantizer.csv") if own_actor else Table({}),
        energy_method=method,
        energy_missing=missing,
        problems=(),
    )
    code = summary.get("exit_code")
    if summary and code != 0:
        reader.problems.insert(0, f"it ended with exit code {code}")
    return dataclasses.replace(run, problems=tuple(reader.problems))


class _Reader:
    """Reads the files of a folder and collects what is wrong with them."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self.problems: list[str] = []

    def json(self, name: str) -> Mapping[str, Any]:
        try:
            found = json.loads((self._folder / name).read_text())
        except OSError:
            self.problems.append(f"no {name}: it did not come to its end")
            return {}
        except ValueError:  # Also of bytes that are no UTF-8.
            self.problems.append(f"{name} is not JSON")
            return {}
        return found if isinstance(found, dict) else {}

    def csv(self, name: str, needed: Sequence[str] = ()) -> Table:
        table = read_table(self._folder / name)
        if not len(table):
            self.problems.append(f"no rows in {name}")
            return Table({})
        absent = [column for column in needed if column not in table.columns]
        if absent:
            self.problems.append(
                f"{name} has no column {', '.join(absent)}: "
                "a folder of another version, this file is left out"
            )
            return Table({})
        return table

    def actors(self, own: bool) -> Table:
        """Returns the rows of all actors' files."""
        paths = sorted((self._folder / "csv").glob("actor_*.csv"))
        tables = [table for table in map(read_table, paths) if len(table)]
        if any(len(table) > 1 for table in tables):
            tables = [table.rows(1) for table in tables if len(table) > 1]
        if not tables:
            self.problems.append("no rows in csv/actor_*.csv")
        elif own and not any("us_inference" in t.columns for t in tables):
            self.problems.append("no time breakdown in csv/actor_*.csv")
        names = dict.fromkeys(name for table in tables for name in table.columns)
        return Table({n: np.concatenate([t[n] for t in tables]) for n in names})


def read_table(path: pathlib.Path) -> Table:
    """Returns the numbers of a CSV file, an empty table when there is none.

    A row cut short by a kill is left out. Where `wall_s` falls, a resumed run has begun
    anew: the times of its sessions are added up.
    """
    rows = csv_rows.read_rows(path)
    if not rows:
        return Table({})
    columns = {n: np.array([_number(row[n]) for row in rows]) for n in rows[0]}
    if "wall_s" in columns:
        columns["wall_s"] = _unwrap(columns["wall_s"])
    return Table(columns)


def _unwrap(wall_s: np.ndarray) -> np.ndarray:
    falls = np.flatnonzero(np.diff(wall_s) < 0)
    offset = np.zeros(len(wall_s))
    for row in falls:
        offset[row + 1 :] += wall_s[row]
    return wall_s + offset


def _energy_rows(path: pathlib.Path) -> Table:
    """Returns the meter's rows, after one of nothing used at the meter's start."""
    table = read_table(path)
    if not len(table) or "kwh" not in table.columns:
        return Table({})
    first = {name: values[0] for name, values in table.columns.items()}
    start = dict.fromkeys(first, 0.0)
    start["wall_s"] = first["wall_s"] - first.get("metered_s", 0.0)
    if np.isnan(first["kwh"]) or np.isnan(start["wall_s"]):
        return table
    return Table({n: np.concatenate([[start[n]], v]) for n, v in table.columns.items()})


def _energy_words(path: pathlib.Path) -> tuple[str, str]:
    rows = csv_rows.read_rows(path)
    if not rows:
        return "unknown", ""
    return rows[-1].get("method", "unknown"), rows[-1].get("missing", "")


def _with_kwh(evaluations: Table, meter: Table) -> Table:
    """Adds what had been used at each evaluation; NaN where the meter does not say."""
    if not len(evaluations):
        return evaluations
    used = [meter.at("kwh", "wall_s", t) for t in evaluations["wall_s"]]
    kwh = np.array([np.nan if value is None else value for value in used])
    return Table({**evaluations.columns, "kwh": kwh})


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _mean(values: np.ndarray) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None
