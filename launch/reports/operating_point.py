"""What limits a run at a number of actors, and what to change: pure functions.

A run is a pipeline: actors insert, replay keeps its ratio of samples to inserts, the
learner steps, the quantizer publishes. Whoever does not wait is the limit:

* the actors wait for replay's limiter: the learner is slower than what they bring;
* the learner waits for data: the actors are, or replay, when they spend their time on
  inserting;
* the quantizer works all the time between two publications: publishing is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from acme_quant.launch.nodes import ENERGY_ROLES
from acme_quant.launch.reports.runs import Run

# The first part of a run holds start-up and compilation.
SKIPPED = 0.25
WAITS = 0.15
INSERTS = 0.5
PUBLISHES = 0.8
KNEE = 0.9

METHODS = {
    "throughput": "environment steps a second of all actors, without the run's first "
    f"{SKIPPED:.0%} after the learner's first row",
    "limit": (
        f"learner: actors wait more than {WAITS:.0%} of their time for replay's "
        f"limiter; else publishing: the quantizer works more than {PUBLISHES:.0%} of "
        "the time between publications; else, when the learner waits more than "
        f"{WAITS:.0%} of its time for data: replay, if actors spend more than "
        f"{INSERTS:.0%} on inserting, else actors; else none"
    ),
    "knee": f"the fewest actors with {KNEE:.0%} of the highest throughput measured",
    "ratio": "busy cores of the actor processes / of the learner process, CPU time",
    "per_watt": "throughput / mean power of the whole machine",
    "samples_per_insert": (
        "extrapolated: learner steps/s if it never waited x batch / environment "
        "steps/s if the actors never waited; both rates are those measured side by side"
    ),
    "batch": "the measured batch with the most samples/s if the learner never waited",
}


@dataclasses.dataclass(frozen=True)
class Point:
    """What one short run measured; None where it did not.

    Attributes:
      quantizer, actors, batch, samples_per_insert: what was asked for.
      steps_per_s: environment steps a second.
      learner_steps_per_s: learner steps a second.
      learner_waits: part of the learner's time that it waits for data.
      actors_wait: part of the actors' time that replay's limiter holds them.
      actors_insert: part of it that goes to inserting.
      publishing: part of the time between publications that the quantizer works.
      cores: role -> busy cores.
      watts: mean power of the machine.
      others: part of its CPU time that other programs took.
      limit: what limits the run; None when that cannot be told.
    """

    quantizer: str
    actors: int
    batch: int
    samples_per_insert: float
    steps_per_s: float | None = None
    learner_steps_per_s: float | None = None
    learner_waits: float | None = None
    actors_wait: float | None = None
    actors_insert: float | None = None
    publishing: float | None = None
    cores: Mapping[str, float] = dataclasses.field(default_factory=dict)
    watts: float | None = None
    others: float | None = None

    @property
    def limit(self) -> str | None:
        """The part that does not wait for any other."""
        if self.actors_wait is None or self.learner_waits is None:
            return None
        if self.actors_wait > WAITS:
            return "learner"
        if self.publishing is not None and self.publishing > PUBLISHES:
            return "publishing"
        if self.learner_waits > WAITS:
            return "replay" if (self.actors_insert or 0.0) > INSERTS else "actors"
        return "none"

    @property
    def steps_per_watt_s(self) -> float | None:
        """Environment steps per second and watt."""
        return (
            self.steps_per_s / self.watts if self.steps_per_s and self.watts else None
        )

    def to_json(self) -> dict[str, object]:
        """Returns what was measured and what follows from it, as JSON can hold it."""
        follows = {"limit": self.limit, "steps_per_watt_s": self.steps_per_watt_s}
        return {**dataclasses.asdict(self), **follows}

    @property
    def free_steps_per_s(self) -> float | None:
        """Environment steps a second if the actors never waited for the limiter."""
        if self.steps_per_s is None or self.actors_wait is None:
            return None
        return self.steps_per_s / max(1.0 - self.actors_wait, 1e-3)

    @property
    def free_learner_steps_per_s(self) -> float | None:
        """Learner steps a second if the learner never waited for data."""
        if self.learner_steps_per_s is None or self.learner_waits is None:
            return None
        return self.learner_steps_per_s / max(1.0 - self.learner_waits, 1e-3)


@dataclasses.dataclass(frozen=True)
class Advice:
    """What to set on this machine.

    Attributes:
      actors: at the knee.
      limit: what limits a run there.
      actor_cores_per_learner_core: busy cores there.
      batch: of those measured, the one with the most samples a second.
      samples_per_insert: at which neither side would wait.
      extrapolated: what of it was not measured, in words.
    """

    actors: int
    limit: str | None
    actor_cores_per_learner_core: float | None
    batch: int
    samples_per_insert: float | None
    extrapolated: Sequence[str]


def measure(run: Run, quantizer: str, actors: int) -> Point:
    """Returns what a finished run measured."""
    point = Point(
        quantizer=quantizer,
        actors=actors,
        batch=int(run.config.get("batch_size", 0)),
        samples_per_insert=float(run.config.get("samples_per_insert", 0.0)),
    )
    if not run.finished:
        return point
    stages = run.stage_us()
    whole = sum(stages.values())
    return dataclasses.replace(
        point,
        steps_per_s=_rate(run, "actor_steps"),
        learner_steps_per_s=_rate(run, "learner_steps"),
        learner_waits=_learner_waits(run),
        actors_wait=stages.get("waiting", 0.0) / whole if whole else None,
        actors_insert=stages.get("adder", 0.0) / whole if whole else None,
        publishing=_publishing(run),
        cores=_cores(run),
        watts=_watts(run),
        others=run.share_of_others(),
    )


def _rate(run: Run, column: str) -> float | None:
    wall, counts = run.learner["wall_s"], run.learner[column]
    known = ~(np.isnan(wall) | np.isnan(counts))
    wall, counts = wall[known], counts[known]
    if len(wall) < 3:
        return None
    kept = wall >= wall[0] + SKIPPED * (wall[-1] - wall[0])
    wall, counts = wall[kept], counts[kept]
    if len(wall) < 2 or wall[-1] <= wall[0]:
        return None
    return float((counts[-1] - counts[0]) / (wall[-1] - wall[0]))


def _learner_waits(run: Run) -> float | None:
    """Returns waiting / all of the learner's time, without the first rows."""
    first = max(1, int(SKIPPED * len(run.learner)))
    rows = run.learner.rows(first)
    steps = np.diff(run.learner["learner_steps"])[first - 1 :]
    names = ("waiting_ms", "step_ms", "export_ms")
    parts = [np.nansum(rows[name] * steps) for name in names]
    return float(parts[0] / sum(parts)) if sum(parts) > 0 else None


def _publishing(run: Run) -> float | None:
    """Returns the quantizer's work per publication / the time between two."""
    table = run.quantizer
    count, wall = table["publications"], table["wall_s"]
    active = np.flatnonzero(count > 1)
    if len(active) < 2 or wall[active[-1]] <= wall[active[0]]:
        return None
    first, last = active[0], active[-1]
    per_s = (count[last] - count[first]) / (wall[last] - wall[first])
    parts = (table.last(f"{name}_ms") for name in ("fetch", "quantize", "publish"))
    return float(sum(part or 0.0 for part in parts) * 1e-3 * per_s)


def _cores(run: Run) -> dict[str, float]:
    kwh = run.kwh_by_role()
    whole, cpu_s = sum(kwh.values()), run.energy.last("cpu_s")
    seconds = run.energy.last("metered_s")
    if not whole or not cpu_s or not seconds:
        return {}
    return {r: kwh.get(r, 0.0) / whole * cpu_s / seconds for r in ENERGY_ROLES}


def _watts(run: Run) -> float | None:
    kwh, seconds = run.energy.last("kwh"), run.energy.last("metered_s")
    return 3.6e6 * kwh / seconds if kwh and seconds else None


def knee(points: Sequence[Point]) -> Point | None:
    """Returns the point with the fewest actors that has KNEE of the best throughput."""
    known = [point for point in points if point.steps_per_s]
    if not known:
        return None
    best = max(point.steps_per_s for point in known)
    enough = [point for point in known if point.steps_per_s >= KNEE * best]
    return min(enough, key=lambda point: point.actors)


def recommend(points: Sequence[Point], cores: int) -> Advice | None:
    """Returns what to set on this machine, and what of it was not measured.

    Args:
      points: of one number format, over actors; some with another batch.
      cores: of the machine.
    """
    usual = points[0].batch if points else 0
    at = knee([point for point in points if point.batch == usual])
    if at is None:
        return None
    batches = [
        point
        for point in points
        if point.actors == at.actors and point.free_learner_steps_per_s
    ]
    by_samples = [(p.free_learner_steps_per_s * p.batch, p) for p in batches]
    best = max(by_samples, key=lambda pair: pair[0])[1] if by_samples else at
    ratio = None
    if at.cores.get("learner"):
        ratio = at.cores.get("actor", 0.0) / at.cores["learner"]
    insert = None
    if best.free_steps_per_s and best.free_learner_steps_per_s:
        insert = best.free_learner_steps_per_s * best.batch / best.free_steps_per_s
    return Advice(
        actors=at.actors,
        limit=at.limit,
        actor_cores_per_learner_core=ratio,
        batch=best.batch,
        samples_per_insert=insert,
        extrapolated=_extrapolated(points, at, best, cores),
    )


def _extrapolated(
    points: Sequence[Point], at: Point, best: Point, cores: int
) -> list[str]:
    """Returns in words what the recommendation takes on trust."""
    said = [
        "samples per insert: no run was made with this value; the rates it comes from "
        "are those of parts that shared the machine's cores."
    ]
    most = max(point.actors for point in points)
    if at.actors == most:
        said.append(
            f"actors: throughput still rose at {most} actors, the most that were "
            "tried; the knee may lie beyond."
        )
    if most > cores:
        said.append(
            f"more actors than the {cores} cores share them: they only overlap."
        )
    if len({point.batch for point in points}) == 1:
        said.append(f"batch: only {best.batch} was tried.")
    else:
        said.append(
            "batch: learning per sample may differ with it; only speed was seen."
        )
    return said
