"""`summary.json` of a comparison: what its runs measured, and what they did not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from acme_quant.launch.reports import measures
from acme_quant.launch.reports.measures import Ratio, Spread
from acme_quant.launch.reports.runs import Run

FORMAT = 1
# More of the machine than a desktop's background takes.
OTHERS_LIMIT = 0.10

BySeed = Mapping[int, float | None]
# Reference -> arm -> ratio, for every arm but the reference itself.
Ratios = Mapping[str, Mapping[str, Ratio]]


@dataclasses.dataclass(frozen=True)
class RunNumbers:
    """One run in numbers; None for what it did not measure."""

    arm: str
    seed: int
    finished: bool
    exit_code: int | None
    wall_s: float | None
    actor_steps: float | None
    learner_steps: float | None
    evaluations: int
    best_return: float | None
    final_return: float | None
    kwh: float | None
    kg_co2: float | None
    bytes_sent: float | None
    staleness: float | None
    share_of_other_programs: float | None
    energy_method: str
    energy_missing: str


@dataclasses.dataclass(frozen=True)
class Arm:
    """Means and spreads over the finished runs of one arm."""

    runs: int
    best_return: Spread
    final_return: Spread
    steps_per_s: Spread
    kwh: Spread
    kg_co2: Spread
    bytes_sent: Spread
    policy_bytes: Spread
    staleness: Spread
    breakdown_us: Mapping[str, float]
    kwh_by_role: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Reached:
    """When the finished runs of an arm reached a level: seconds from launch.

    `reached` of `of` runs did; the rest is a `Spread` over those.
    """

    seconds: BySeed
    reached: int
    of: int
    mean: float | None
    std: float | None
    min: float | None
    max: float | None
    n: int


@dataclasses.dataclass(frozen=True)
class Level:
    """A return to measure the time to."""

    name: str
    return_: float
    arms: Mapping[str, Reached]
    speedup: Ratios


@dataclasses.dataclass(frozen=True)
class WholeRun:
    """Times, energies and their ratios at equal learner steps."""

    learner_steps: BySeed
    seconds: Mapping[str, BySeed]
    training_seconds: Mapping[str, BySeed]
    kwh: Mapping[str, BySeed]
    kg_co2: Mapping[str, BySeed]
    speedup: Ratios
    training_speedup: Ratios
    kwh_ratio: Ratios
    kg_co2_ratio: Ratios


@dataclasses.dataclass(frozen=True)
class Findings:
    """Everything that the report of a comparison says."""

    arms: Sequence[str]
    seeds: Sequence[int]
    references: Sequence[str]
    problems: Sequence[str]
    runs: Sequence[RunNumbers]
    by_arm: Mapping[str, Arm]
    levels: Sequence[Level]
    whole_run: WholeRun

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The (reference, arm) that a reader is shown."""
        return measures.pairs(self.arms, self.references)

    def to_json(self) -> dict[str, Any]:
        """Returns all of it as JSON can hold it, `return_` as `return`."""
        found = dataclasses.asdict(
            self, dict_factory=lambda pairs: {k.rstrip("_"): v for k, v in pairs}
        )
        return {"format": FORMAT, "methods": measures.METHODS, **found}


def findings(
    arms: Sequence[str],
    seeds: Sequence[int],
    runs: Sequence[Run],
    level: float | None = None,
) -> Findings:
    """Returns everything the report says.

    Args:
      arms: the arms that were asked for, in their order.
      seeds: the seeds that were asked for.
      runs: the runs there are, finished or not.
      level: a return to use as the level instead of shares of float32's best.
    """
    done = {a: [r for r in runs if r.arm == a and r.finished] for a in arms}
    references = [name for name in measures.REFERENCES if done.get(name)]
    return Findings(
        arms=list(arms),
        seeds=list(seeds),
        references=references,
        problems=_problems(arms, seeds, runs, done, level),
        runs=[_run(run) for run in runs],
        by_arm={arm: _arm(done[arm]) for arm in arms},
        levels=_levels(done, references, level),
        whole_run=_whole_run(done, references),
    )


def _problems(
    arms: Sequence[str],
    seeds: Sequence[int],
    runs: Sequence[Run],
    done: Mapping[str, Sequence[Run]],
    level: float | None,
) -> list[str]:
    """Returns what a reader must know before any number, one sentence each."""
    found = []
    there = {(run.arm, run.seed) for run in runs}
    for arm in arms:
        absent = [str(seed) for seed in seeds if (arm, seed) not in there]
        if absent:
            found.append(f"{arm}: no run of seed {', '.join(absent)}.")
        if not done[arm]:
            found.append(f"{arm}: no finished run, so it is in no mean and no ratio.")
    for run in runs:
        for problem in run.problems:
            found.append(f"{run.name}: {problem}.")
        others = run.share_of_others()
        if others is not None and others > OTHERS_LIMIT:
            found.append(
                f"{run.name}: {others:.0%} of the CPU time went to other programs, so "
                "its times and its energy are not its own alone."
            )
        if not run.finished:
            found.append(f"{run.name}: not finished, so it is left out of all means.")
    if not done.get("float32") and level is None:
        found.append("No finished float32 run: there is no level to measure time to.")
    elif level is None and not measures.levels(done, None):
        found.append(
            f"No float32 run has {measures.WINDOW} evaluations: there is no level to "
            "measure time to."
        )
    if len(seeds) < 3:
        found.append(f"Only {len(seeds)} seed(s): the spread over seeds says little.")
    return found


def _run(run: Run) -> RunNumbers:
    return RunNumbers(
        arm=run.arm,
        seed=run.seed,
        finished=run.finished,
        exit_code=run.summary.get("exit_code"),
        wall_s=run.summary.get("wall_s"),
        actor_steps=run.summary.get("actor_steps"),
        learner_steps=run.learner.last("learner_steps"),
        evaluations=len(run.evaluations),
        best_return=measures.best_return(run),
        final_return=measures.final_return(run),
        kwh=run.energy.last("kwh"),
        kg_co2=run.energy.last("kg_co2"),
        bytes_sent=run.bytes_sent(),
        staleness=run.staleness(),
        share_of_other_programs=run.share_of_others(),
        energy_method=run.energy_method,
        energy_missing=run.energy_missing,
    )


def _arm(runs: Sequence[Run]) -> Arm:
    """Returns means and spreads over the finished runs of one arm."""

    def over_seeds(measure: Callable[[Run], float | None]) -> Spread:
        return measures.spread([measure(run) for run in runs])

    return Arm(
        runs=len(runs),
        best_return=over_seeds(measures.best_return),
        final_return=over_seeds(measures.final_return),
        steps_per_s=over_seeds(Run.steps_per_s),
        kwh=over_seeds(lambda run: run.energy.last("kwh")),
        kg_co2=over_seeds(lambda run: run.energy.last("kg_co2")),
        bytes_sent=over_seeds(Run.bytes_sent),
        policy_bytes=over_seeds(lambda run: run.quantizer.last("policy_bytes")),
        staleness=over_seeds(Run.staleness),
        breakdown_us=_mean_of([run.stage_us() for run in runs]),
        kwh_by_role=_mean_of([run.kwh_by_role() for run in runs]),
    )


def _mean_of(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    names = dict.fromkeys(name for part in parts for name in part)
    means = {n: measures.mean([part.get(n) for part in parts]) for n in names}
    return {name: value for name, value in means.items() if value is not None}


def _levels(
    done: Mapping[str, Sequence[Run]], references: Sequence[str], level: float | None
) -> list[Level]:
    found = []
    for name, value in measures.levels(done, level):
        seconds = {
            arm: {run.seed: measures.reached_at(run, value) for run in runs}
            for arm, runs in done.items()
        }
        arms = {arm: _reached(by_seed) for arm, by_seed in seconds.items()}
        found.append(Level(name, value, arms, _against(references, seconds)))
    return found


def _reached(by_seed: BySeed) -> Reached:
    reached = sum(seconds is not None for seconds in by_seed.values())
    spread = measures.spread(list(by_seed.values()))
    return Reached(by_seed, reached, len(by_seed), **dataclasses.asdict(spread))


def _whole_run(
    done: Mapping[str, Sequence[Run]], references: Sequence[str]
) -> WholeRun:
    """Returns times, energies and their ratios at equal learner steps."""
    by_seed: dict[int, list[Run]] = {}
    for runs in done.values():
        for run in runs:
            by_seed.setdefault(run.seed, []).append(run)
    steps = {seed: measures.equal_steps(runs) for seed, runs in by_seed.items()}

    def table(measure: Callable[[Run, float], float | None]) -> dict[str, BySeed]:
        return {
            arm: {
                run.seed: measure(run, steps[run.seed])
                for run in runs
                if steps[run.seed] is not None
            }
            for arm, runs in done.items()
        }

    seconds = table(measures.seconds_to)
    training = table(measures.training_seconds_to)
    kwh = table(measures.energy_to)
    kg_co2 = table(lambda run, at: measures.energy_to(run, at, "kg_co2"))
    return WholeRun(
        learner_steps=steps,
        seconds=seconds,
        training_seconds=training,
        kwh=kwh,
        kg_co2=kg_co2,
        speedup=_against(references, seconds),
        training_speedup=_against(references, training),
        kwh_ratio=_against(references, kwh),
        kg_co2_ratio=_against(references, kg_co2),
    )


def _against(references: Sequence[str], values: Mapping[str, BySeed]) -> Ratios:
    return {
        reference: {
            arm: measures.ratios(values[reference], by_seed)
            for arm, by_seed in values.items()
            if arm != reference
        }
        for reference in references
    }
