"""`acme-quant balance`: how many actors this machine can use, and what limits them.

    DIR/balance.json                    what was tried
    DIR/runs/FORMAT/actors_N[_batch_B]/ one short training each
    DIR/report/summary.json, balance.png, balance.html

Each run takes a number of environment steps that grows with its actors, without
evaluator and checkpoints. One more run at the knee has a batch four times as large.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import sys
from collections.abc import Sequence

from absl import flags

from acme_quant.launch.commands import child
from acme_quant.launch.reports import operating_point, runs
from acme_quant.launch.reports.operating_point import Point
from acme_quant.launch.running import signals
from acme_quant.launch.settings import arguments, checks, machine
from acme_quant.launch.settings.config import UsageError
from acme_quant.policy import quantizers
from acme_quant.records.say import say
from acme_quant.settings.declaration import setting

# What the balance decides for each run.
_OWN = ("quantizer", "actor", "num_actors", "max_actor_steps")
_OWN += ("evaluate_every", "checkpoint_every_s", "fresh")
_BATCH_FACTOR = 4
BALANCE_FILE = "balance.json"


def _default_actors() -> tuple[int, ...]:
    cores = machine.cores()
    return tuple(n for n in (1, 2, 4, 8, 16, 32, 64) if n <= max(1, 2 * cores))


@dataclasses.dataclass(frozen=True)
class Options:
    """The command's own flags."""

    actors: tuple[int, ...] = setting(
        _default_actors(), "Numbers of actors to try.", at_least=1, fewest=1
    )
    quantizers: tuple[str, ...] = setting(
        ("int8", "float32"),
        "Number formats to try.",
        choices=tuple(quantizers.QUANTIZERS),
        fewest=1,
    )
    steps_per_actor: int = setting(
        5000,
        "Environment steps of each actor in a run; --min_replay_size of them come "
        "before the learner starts.",
        at_least=1,
    )


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is tried.

    Attributes:
      workdir: the folder for everything.
      formats: number formats.
      actors: numbers of actors, rising.
      steps_per_actor: environment steps of each actor.
      flags: the flags of `train` that all runs share.
    """

    workdir: pathlib.Path
    formats: Sequence[str]
    actors: Sequence[int]
    steps_per_actor: int
    flags: Sequence[str]

    def arguments(self, quantizer: str, actors: int) -> list[str]:
        """Returns the flags of one run, without its folder."""
        own = (
            f"--quantizer={quantizer}",
            f"--num_actors={actors}",
            f"--max_actor_steps={actors * self.steps_per_actor}",
            "--evaluate_every=0",
            "--checkpoint_every_s=0",
        )
        return [*self.flags, *own]


def main(argv: Sequence[str]) -> int:
    """Tries what the flags say and recommends.

    Args:
      argv: program name and flags.

    Returns:
      0 when all runs finished, 1 when one did not, 2 when it cannot be run, 130 on
      Ctrl-C.
    """
    try:
        values, options = arguments.flags_of(argv, Options)
        plan = make_plan(values, options, argv)
        batch = _check(plan)
    except arguments.HelpRequested as text:
        say(str(text))
        return 0
    except UsageError as error:
        say(f"{argv[0]}: {error}", sys.stderr)
        return 2
    signals.listen()
    try:
        points = run_all(plan, batch, argv)
    except child.Interrupted as interrupted:
        return interrupted.code
    return _report(plan, points)


def make_plan(
    values: flags.FlagValues, options: Options, argv: Sequence[str] = ()
) -> Plan:
    """Returns the plan that the parsed flags of `argv` describe.

    Raises:
      UsageError: if a flag is decided by the plan, or there is no folder.
    """
    arguments.refuse(argv, values, _OWN, "each run has its own")
    if not values.workdir:
        raise UsageError("expected --workdir=FOLDER for the runs, got none.")
    return Plan(
        workdir=pathlib.Path(values.workdir),
        formats=list(dict.fromkeys(options.quantizers)),
        actors=sorted(set(options.actors)),
        steps_per_actor=options.steps_per_actor,
        flags=arguments.of_train(values, without=_OWN),
    )


def _check(plan: Plan) -> int:
    """Refuses what `train` would refuse; returns the batch size."""
    for actors in plan.actors:
        given = plan.arguments(plan.formats[0], actors)
        run = checks.parse(["train", *given, "--workdir=x"])
        checks.check(run)
    if (plan.workdir / BALANCE_FILE).exists():
        raise UsageError(
            f"{plan.workdir} holds a balance already; take another folder."
        )
    least = run.agent_config.min_replay_size
    if 2 * least > plan.steps_per_actor * plan.actors[0]:
        raise UsageError(
            f"expected --steps_per_actor of at least {2 * least // plan.actors[0]} "
            f"with --min_replay_size={least}, got {plan.steps_per_actor}: "
            "the learner would hardly run."
        )
    checks.check_workdir(plan.workdir)
    return run.agent_config.batch_size


def run_all(plan: Plan, batch: int, argv: Sequence[str]) -> list[Point]:
    """Runs the plan, and one larger batch at the knee of each format.

    Raises:
      child.Interrupted: a signal came.
    """
    about = {"command": list(argv), "host": machine.describe()}
    (plan.workdir / BALANCE_FILE).write_text(json.dumps(about, indent=2) + "\n")
    points = []
    for actors in plan.actors:
        for name in plan.formats:
            points.append(_run(plan, name, actors, f"actors_{actors}", []))
    for name in plan.formats:
        at = operating_point.knee([p for p in points if p.quantizer == name])
        if at is not None:
            larger = _BATCH_FACTOR * batch
            folder = f"actors_{at.actors}_batch_{larger}"
            extra = [f"--batch_size={larger}"]
            points.append(_run(plan, name, at.actors, folder, extra))
    return points


def _run(
    plan: Plan, quantizer: str, actors: int, folder: str, extra: Sequence[str]
) -> Point:
    place = plan.workdir / "runs" / quantizer / folder
    label = f"{quantizer}, {folder.replace('_', ' ')}"
    code, words = child.train(
        [*plan.arguments(quantizer, actors), *extra, f"--workdir={place}"],
        place.with_suffix(".log"),
        lambda line: say(f"{label}: {line}"),
    )
    say(f"{label}: {words}")
    run = runs.read(place, quantizer, 0)
    if code:
        run = dataclasses.replace(run, finished=False)
    return operating_point.measure(run, quantizer, actors)


def _report(plan: Plan, points: Sequence[Point]) -> int:
    """Writes and prints the result; returns 1 when a run is missing in it."""
    from acme_quant.launch.reports import balance_page

    about = json.loads((plan.workdir / BALANCE_FILE).read_text())
    found = balance_page.write(plan.workdir / "report", points, about)
    for name, advice in found.recommendations.items():
        say(f"{name}: {balance_page.sentence(advice)}")
        for text in advice.extrapolated if advice else ():
            say(f"  extrapolated: {text}")
    for problem in found.problems:
        say(f"  note: {problem}")
    page = plan.workdir / "report" / "balance.html"
    say(f"report: {page.resolve()}")
    return 0 if all(point.steps_per_s for point in points) else 1
