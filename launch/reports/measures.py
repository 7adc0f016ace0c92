"""The numbers of a comparison, from the runs' curves: pure functions.

Every ratio is reference / arm of the same seed, so that above 1 the arm is better; the
mean over seeds is geometric, because ratios multiply. A seed in which one of the two
did not finish, or did not get there, has no ratio.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from acme_quant.launch.reports.runs import Run

# Evaluations in a row whose mean counts: one lucky episode is no level reached.
WINDOW = 3
FRACTIONS = (0.50, 0.80, 0.90, 0.95)
REFERENCES = ("float32", "acme")

METHODS = {
    "best_return": (f"highest mean of {WINDOW} evaluations in a row, greedy episodes"),
    "final_return": f"mean of the last {WINDOW} evaluations, greedy episodes",
    "level": (
        "level = B - (1 - p)|B|, B the mean over seeds of float32's best return, which "
        "is p B for a positive B"
    ),
    "time_to_level": (
        f"seconds from launch, start-up included, to the last of the first {WINDOW} "
        "evaluations in a row whose mean is at or above the level"
    ),
    "speedup": (
        "seconds from launch to L learner steps, L the least that any arm of the seed "
        "reached at its end; reference / arm within a seed, geometric mean over seeds"
    ),
    "training_speedup": "the same from the first learner step on, without start-up",
    "energy_ratio": (
        "kWh of the whole machine from the meter's start to L learner steps; "
        "reference / arm within a seed, geometric mean over seeds"
    ),
    "bytes_sent": "bytes of all policies that actors and evaluator took",
    "staleness": "learner steps behind the newest policy known, mean over episodes",
    "breakdown": "wall time of an actor's loop per environment step, logged episodes",
    "steps_per_s": (
        "environment steps of all actors a second, from the first learner row on"
    ),
}


@dataclasses.dataclass(frozen=True)
class Spread:
    """A quantity over seeds; None when no seed has it, `std` when only one has."""

    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None
    n: int = 0


@dataclasses.dataclass(frozen=True)
class Ratio:
    """Reference / arm by seed, with geometric mean and range over the seeds."""

    mean: float | None
    min: float | None
    max: float | None
    by_seed: Mapping[int, float]


def smooth(returns: np.ndarray) -> np.ndarray:
    """Returns the means of WINDOW values in a row, float64 [max(n - WINDOW + 1, 0)]."""
    if len(returns) < WINDOW:
        return np.zeros(0)
    return np.convolve(returns, np.ones(WINDOW) / WINDOW, mode="valid")


def best_return(run: Run) -> float | None:
    """Returns the best smoothed return; None with fewer evaluations than WINDOW."""
    smoothed = smooth(run.evaluations["episode_return"])
    return float(smoothed.max()) if len(smoothed) else None


def final_return(run: Run) -> float | None:
    """Returns the last smoothed return; None with fewer evaluations than WINDOW."""
    smoothed = smooth(run.evaluations["episode_return"])
    return float(smoothed[-1]) if len(smoothed) else None


def reached_at(run: Run, level: float, column: str = "wall_s") -> float | None:
    """Returns `column` where the run first stood at `level`; None if it never did."""
    smoothed = smooth(run.evaluations["episode_return"])
    at = np.flatnonzero(smoothed >= level)
    if not len(at):
        return None
    value = float(run.evaluations[column][at[0] + WINDOW - 1])
    return None if math.isnan(value) else value


def levels(
    by_arm: Mapping[str, Sequence[Run]], level: float | None
) -> list[tuple[str, float]]:
    """Returns (name, return) of each level; [] when float32's best is unknown.

    Args:
      by_arm: finished runs.
      level: one return to use instead.
    """
    if level is not None:
        return [(f"return {level:g}", level)]
    best = mean([best_return(run) for run in by_arm.get("float32", ())])
    if best is None:
        return []
    return [(f"{p:.0%}", best - (1.0 - p) * abs(best)) for p in FRACTIONS]


def equal_steps(runs: Sequence[Run]) -> float | None:
    """Returns the most learner steps that all of `runs` reached."""
    lasts = [run.learner.last("learner_steps") for run in runs]
    known = [steps for steps in lasts if steps is not None]
    return min(known) if known and len(known) == len(runs) else None


def seconds_to(run: Run, learner_steps: float) -> float | None:
    """Returns the seconds from launch to a number of learner steps."""
    return run.learner.at("wall_s", "learner_steps", learner_steps)


def training_seconds_to(run: Run, learner_steps: float) -> float | None:
    """Returns the seconds from the learner's first row to a number of its steps."""
    end = seconds_to(run, learner_steps)
    if end is None:
        return None
    begin = float(run.learner["wall_s"][0])
    return end - begin if end > begin else None


def energy_to(run: Run, learner_steps: float, column: str = "kwh") -> float | None:
    """Returns the kWh (or kg CO2) used up to a number of learner steps."""
    seconds = seconds_to(run, learner_steps)
    if seconds is None:
        return None
    # The meter's last reading is taken while the nodes end, after the last step.
    return run.energy.at(column, "wall_s", seconds)


def mean(values: Sequence[float | None]) -> float | None:
    """Returns the mean of the known values; None when there is none."""
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def spread(values: Sequence[float | None]) -> Spread:
    """Returns mean, standard deviation over seeds, least, most and their number."""
    known = [value for value in values if value is not None]
    if not known:
        return Spread()
    std = float(np.std(known, ddof=1)) if len(known) > 1 else None
    return Spread(float(np.mean(known)), std, min(known), max(known), len(known))


def pairs(arms: Sequence[str], references: Sequence[str]) -> list[tuple[str, str]]:
    """Returns the (reference, arm) that a reader is shown.

    Of two references each is not held against the other both ways: float32 of our
    engine is an arm beside Acme's own actor, and not the other way round.
    """
    return [
        (reference, arm)
        for place, reference in enumerate(references)
        for arm in arms
        if arm != reference and arm not in references[place:]
    ]


def ratios(
    reference: Mapping[int, float | None], arm: Mapping[int, float | None]
) -> Ratio:
    """Returns reference / arm of each seed that has both.

    Args:
      reference: seed -> value; None where it was not measured.
      arm: the same of the arm.
    """
    seeds = {
        seed: reference[seed] / arm[seed]
        for seed in sorted(set(reference) & set(arm))
        if reference[seed] and arm[seed]
    }
    values = list(seeds.values())
    if not values:
        return Ratio(None, None, None, seeds)
    mean = float(np.exp(np.mean(np.log(values))))
    return Ratio(mean, min(values), max(values), seeds)
