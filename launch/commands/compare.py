"""`acme-quant compare`: the same training in several number formats, and a report.

The arms run one after another on this machine, with the same flags but the number
format. Seed follows seed, and each seed begins with another arm, so that a machine that
slows down or speeds up over the hours favours none.
"""

from __future__ import annotations

import dataclasses
import json
import pathlib
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from absl import flags

from acme_quant.launch.commands import child
from acme_quant.launch.running import signals
from acme_quant.launch.settings import arguments, checks, machine
from acme_quant.launch.settings.config import PROCESSES, RunConfig, UsageError
from acme_quant.policy import quantizers
from acme_quant.records.say import say
from acme_quant.settings import refusals
from acme_quant.settings.declaration import setting

# What an arm decides, or the comparison itself.
_OWN = ("quantizer", "actor", "seed", "fresh")


@dataclasses.dataclass(frozen=True)
class Options:
    """The command's own flags."""

    quantizers: tuple[str, ...] = setting(
        ("float32", "int8"),
        "Number formats, one arm each.",
        choices=tuple(quantizers.QUANTIZERS),
        fewest=1,
    )
    seeds: int = setting(3, "Seeds: 0 to N-1.", at_least=1)
    baseline: str = setting(
        "", "One more arm: acme, Acme's own actor.", choices=("", "acme")
    )
    level: float | None = setting(
        None, "Return to measure the time to, instead of shares of float32's best."
    )
    resume: bool = setting(False, "Go on with the comparison in --workdir.")


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What is compared.

    Attributes:
      workdir: the folder for everything.
      arms: name -> the flags of `train` that make the arm.
      seeds: the seeds.
      level: a return to measure the time to; None for shares of float32's best.
    """

    workdir: pathlib.Path
    arms: Mapping[str, Sequence[str]]
    seeds: Sequence[int]
    level: float | None = None

    def runs(self) -> Iterator[tuple[str, int]]:
        """Yields (arm, seed) in the order in which they run."""
        names = list(self.arms)
        for place, seed in enumerate(self.seeds):
            first = place % len(names)
            for arm in names[first:] + names[:first]:
                yield arm, seed


def main(argv: Sequence[str]) -> int:
    """Compares as the flags say.

    Args:
      argv: program name and flags.

    Returns:
      0 when all runs finished, 1 when one did not, 2 when the comparison cannot be run
      (one sentence says why), 130 on Ctrl-C; the report is written in every case but 2.
    """
    try:
        values, options = arguments.flags_of(argv, Options)
        comparison = _resumed(values) or make_comparison(values, options, argv)
        about = _describe(comparison, argv, resume=options.resume)
    except arguments.HelpRequested as text:
        say(str(text))
        return 0
    except UsageError as error:
        say(f"{argv[0]}: {error}", sys.stderr)
        return 2
    signals.listen()
    code = 0
    try:
        run_all(comparison, about)
    except child.Interrupted as interrupted:
        code = interrupted.code
    except UsageError as error:
        say(f"{argv[0]}: {error}", sys.stderr)
        return 2
    reported = _report(comparison)
    return code or reported


def _resumed(values: flags.FlagValues) -> Comparison | None:
    """Returns the comparison in the folder, when nothing but the folder was given."""
    from acme_quant.launch.reports import comparison as report

    given = {name for name in values if values[name].present}
    if not values.resume or given - {"resume", "workdir", "level"}:
        return None
    try:
        about = report.read_comparison(pathlib.Path(values.workdir))
    except report.ReportError as error:
        raise UsageError(str(error)) from error
    return Comparison(
        pathlib.Path(values.workdir), about["arms"], about["seeds"], values.level
    )


def make_comparison(
    values: flags.FlagValues, options: Options, argv: Sequence[str] = ()
) -> Comparison:
    """Returns the comparison that the parsed flags of `argv` describe.

    Raises:
      UsageError: if a flag contradicts the arms or `train` would refuse them.
    """
    arguments.refuse(argv, values, _OWN, "the comparison sets it for each arm")
    if not values.workdir:
        raise UsageError("expected --workdir=FOLDER for the comparison, got none.")
    arms = {name: _arm(values, name) for name in options.quantizers}
    if options.baseline:
        arms[options.baseline] = _baseline(values)
    seeds = list(range(options.seeds))
    return Comparison(pathlib.Path(values.workdir), arms, seeds, options.level)


def _arm(values: flags.FlagValues, name: str) -> list[str]:
    return _checked([*arguments.of_train(values), f"--quantizer={name}"])


def _baseline(values: flags.FlagValues) -> list[str]:
    """Returns the flags of Acme's own actor, without those of ours."""
    ours = refusals.names(RunConfig, serves="engine")
    common = arguments.of_train(values, without=ours)
    return _checked([*common, "--actor=acme"])


def _checked(arm: list[str]) -> list[str]:
    """Returns the flags of an arm if `train` takes them."""
    run = checks.parse(["train", *arm, "--workdir=x"])
    if run.layout != PROCESSES:
        raise UsageError(
            "expected --num_actors of at least 1, got 0: processes are compared."
        )
    checks.check(run)
    return arm


def _describe(
    comparison: Comparison, argv: Sequence[str], resume: bool
) -> dict[str, Any]:
    """Writes `comparison.json`, or reads the one that is resumed."""
    from acme_quant.launch.reports import comparison as report

    path = comparison.workdir / report.COMPARISON_FILE
    arms = {name: list(arm) for name, arm in comparison.arms.items()}
    if path.exists():
        if not resume:
            raise UsageError(
                f"{comparison.workdir} holds a comparison already; --resume goes on "
                "with it."
            )
        try:
            about = report.read_comparison(comparison.workdir)
        except report.ReportError as error:
            raise UsageError(str(error)) from error
        if about["arms"] != arms or about["seeds"] != comparison.seeds:
            raise UsageError(
                f"expected the flags that {path} was begun with, got others; it was: "
                + " ".join(about["command"])
            )
        return about
    checks.check_workdir(comparison.workdir)
    about = {
        "format": report.FORMAT,
        "title": _title(comparison),
        "command": list(argv),
        "arms": arms,
        "seeds": list(comparison.seeds),
        "started": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        "host": machine.describe(),
        "runs": {},
    }
    path.write_text(json.dumps(about, indent=2) + "\n")
    return about


def _title(comparison: Comparison) -> str:
    arm = next(iter(comparison.arms.values()))
    config = checks.parse(["train", *arm, "--workdir=x"]).config
    return f"{config.agent} on {config.env}"


def run_all(comparison: Comparison, about: dict[str, Any]) -> None:
    """Runs what has not finished yet.

    Raises:
      child.Interrupted: a signal came.
      UsageError: `train` refused an arm; all its other runs would be refused too.
    """
    from acme_quant.launch.reports import comparison as report

    order = list(comparison.runs())
    for number, (arm, seed) in enumerate(order, 1):
        folder = report.run_folder(comparison.workdir, arm, seed)
        label = f"[{number}/{len(order)}] {arm}, seed {seed}"
        if is_finished(folder):
            say(f"{label}: finished before")
            continue
        # Half a run cannot be gone on with: its clock and its energy have a gap.
        shutil.rmtree(folder, ignore_errors=True)
        entry = {"load_before": machine.load(), "started": time.time()}
        code, words = child.train(
            [*comparison.arms[arm], f"--seed={seed}", f"--workdir={folder}"],
            folder.with_suffix(".log"),
            lambda line, label=label: say(f"{label}: {line}"),
        )
        say(f"{label}: {words}")
        if code == 2:
            raise UsageError(f"{arm} cannot be run: {words}")
        about["runs"][f"{arm}/{seed}"] = {**entry, "exit_code": code, "words": words}
        path = comparison.workdir / report.COMPARISON_FILE
        path.write_text(json.dumps(about, indent=2) + "\n")


def is_finished(folder: pathlib.Path) -> bool:
    """Returns whether a run reached its end."""
    try:
        return json.loads((folder / "summary.json").read_text())["exit_code"] == 0
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _report(comparison: Comparison) -> int:
    """Writes the report; returns 1 when a run is missing in it."""
    from acme_quant.launch.reports import comparison as report

    found = report.write(comparison.workdir, comparison.level)
    say(f"report: {(comparison.workdir / 'report' / 'report.html').resolve()}")
    for problem in found.problems:
        say(f"  note: {problem}")
    finished = sum(run.finished for run in found.runs)
    return 0 if finished == len(list(comparison.runs())) else 1
