"""The figures of a comparison as PNG files; matplotlib's Agg, no display needed.

Colours are those of Okabe and Ito, told apart with any kind of colour vision; arms have
their own line style and hatch as well, so that a grey print can be read.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from acme_quant.acting import timing
from acme_quant.launch.reports import measures
from acme_quant.launch.reports.runs import Run
from acme_quant.records import cpu_times

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, YELLOW, BLACK = "#E69F00", "#56B4E9", "#F0E442", "#000000"
OKABE_ITO = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, YELLOW, BLACK)
_KNOWN = {"float32": BLUE, "int8": VERMILLION, "acme": BLACK, "float16": GREEN}
_LINES = ("-", "--", "-.", ":")
_STAGE_COLOURS = (GREEN, VERMILLION, YELLOW, SKY, PURPLE, "#BBBBBB", "#666666")
_ROLE_COLOURS = (VERMILLION, BLUE, ORANGE, GREEN, SKY, PURPLE, "#BBBBBB")
_STYLE = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.25,
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "legend.frameon": False,
}
_POINTS = 200


def draw(
    folder: pathlib.Path, runs: Sequence[Run], found: Mapping[str, Any]
) -> dict[str, pathlib.Path]:
    """Writes the figures for which there is data; returns name -> file.

    Args:
      folder: where to.
      runs: the runs there are; those that did not finish are drawn thin and alone.
      found: the comparison's findings.
    """
    makers: dict[str, Callable[[], Figure | None]] = {
        "return": lambda: returns(runs, found),
        "time_to_level": lambda: time_to_level(found),
        "whole_run": lambda: whole_run(found),
        "breakdown": lambda: breakdown(found),
        "energy": lambda: energy_by_role(found),
        "traffic": lambda: traffic(found),
    }
    written = {}
    for name, make in makers.items():
        with matplotlib.rc_context(_STYLE):
            figure = make()
            if figure is not None:
                written[name] = folder / f"{name}.png"
                save(figure, written[name])
    return written


def save(figure: Figure, path: pathlib.Path) -> None:
    """Writes a figure as a PNG file."""
    FigureCanvasAgg(figure)
    figure.savefig(path, dpi=120, bbox_inches="tight", facecolor="white")


def style() -> Any:
    """Returns the context in which all figures are drawn."""
    return matplotlib.rc_context(_STYLE)


def colours(arms: Sequence[str]) -> dict[str, str]:
    """Returns a colour for each arm: the usual arms always have the same."""
    free = [c for c in OKABE_ITO if c not in {_KNOWN.get(arm) for arm in arms}]
    return {arm: _KNOWN.get(arm) or free.pop(0) for arm in arms}


def returns(runs: Sequence[Run], found: Mapping[str, Any]) -> Figure | None:
    """Draws the return over wall-clock, environment steps and energy."""
    axes_of = (
        ("wall_s", 1 / 60, "wall-clock since launch (minutes)"),
        ("actor_steps", 1.0, "environment steps"),
        ("kwh", 1000.0, "energy of the whole machine (Wh)"),
    )
    if not any(len(run.evaluations) for run in runs):
        return None
    figure = Figure(figsize=(14, 4.2), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    for axes, (column, scale, label) in zip(panels, axes_of):
        for index, (arm, colour) in enumerate(colours(found["arms"]).items()):
            own = [run for run in runs if run.arm == arm]
            _curve(axes, own, column, scale, colour, _LINES[index % len(_LINES)], arm)
        axes.set_xlabel(label)
        axes.set_title(f"return over {label.split(' (')[0]}")
        axes.set_xlim(left=0)
        if not axes.lines:
            _say(axes, "not measured")
    for level in found["levels"]:
        panels[0].axhline(level["return"], color="#999999", lw=0.7, ls=":")
        panels[0].annotate(
            level["name"],
            (1.0, level["return"]),
            xycoords=("axes fraction", "data"),
            fontsize=7,
            color="#666666",
            va="center",
        )
    panels[0].set_ylabel("evaluation return (sum of rewards)")
    panels[0].legend(loc="best")
    return figure


def _curve(
    axes: Any,
    runs: Sequence[Run],
    column: str,
    scale: float,
    colour: str,
    line: str,
    label: str,
) -> None:
    """Draws each run thin, and mean and range over the finished ones."""
    curves = []
    for run in runs:
        x = run.evaluations[column] * scale
        y = run.evaluations["episode_return"]
        known = ~(np.isnan(x) | np.isnan(y))
        if not known.any():
            continue
        axes.plot(x[known], y[known], color=colour, lw=0.7, alpha=0.4)
        if run.finished and known.sum() > 1:
            curves.append((x[known], y[known]))
    if not curves:
        return
    grid = np.linspace(
        max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves), _POINTS
    )
    stack = np.array([np.interp(grid, x, y) for x, y in curves])
    axes.plot(grid, stack.mean(0), line, color=colour, lw=2.2, label=label)
    if len(curves) > 1:
        axes.fill_between(grid, stack.min(0), stack.max(0), color=colour, alpha=0.12)


def time_to_level(found: Mapping[str, Any]) -> Figure | None:
    """Draws the minutes to each level as bars, the seeds as dots."""
    levels = found["levels"]
    if not levels:
        return None
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots()
    arms = colours(found["arms"])
    width = 0.8 / len(arms)
    for i, (arm, colour) in enumerate(arms.items()):
        for place, level in enumerate(levels):
            cell = level["arms"][arm]
            x = place + (i - (len(arms) - 1) / 2) * width
            if cell["mean"] is None:
                axes.text(
                    x, 0, " never\n reached", rotation=90, ha="center", fontsize=7
                )
                continue
            axes.bar(x, cell["mean"] / 60, width * 0.92, color=colour, alpha=0.75)
            dots = [s / 60 for s in cell["seconds"].values() if s is not None]
            axes.plot([x] * len(dots), dots, "o", ms=4, mfc="white", mec=colour)
            if cell["reached"] < cell["of"]:
                text = f"{cell['reached']} of {cell['of']}"
                axes.text(x, max(dots), f"{text}\n", ha="center", va="bottom", size=7)
    axes.set_xticks(
        range(len(levels)), [f"{v['name']}\n({v['return']:.4g})" for v in levels]
    )
    axes.set_xlim(-0.55, len(levels) - 0.45)
    axes.set_xlabel("level (share of float32's best return)")
    axes.set_ylabel("minutes from launch")
    axes.set_title("time to a level: bars are means, dots are seeds")
    axes.set_ylim(bottom=0)
    _legend(axes, arms)
    return figure


def whole_run(found: Mapping[str, Any]) -> Figure | None:
    """Draws the ratios at equal learner steps, one panel a reference."""
    rows = (
        ("speedup", "time"),
        ("training_speedup", "time without start-up"),
        ("kwh_ratio", "energy (kWh)"),
    )
    pairs = measures.pairs(found["arms"], found["references"])
    references = [
        name
        for name in found["references"]
        if any(
            cell["by_seed"]
            for key, _ in rows
            for cell in found["whole_run"][key][name].values()
        )
        and any(reference == name for reference, _ in pairs)
    ]
    if not references:
        return None
    figure = Figure(figsize=(6.5 * len(references), 3.8), layout="constrained")
    arms = colours(found["arms"])
    for axes, reference in zip(
        np.atleast_1d(figure.subplots(1, len(references))), references
    ):
        others = {arm: c for arm, c in arms.items() if (reference, arm) in pairs}
        width = 0.8 / len(others)
        for i, (arm, colour) in enumerate(others.items()):
            for place, (key, _) in enumerate(rows):
                cell = found["whole_run"][key][reference][arm]
                x = place + (i - (len(others) - 1) / 2) * width
                if cell["mean"] is None:
                    axes.text(
                        x, 0.02, " not measured", rotation=90, size=7, ha="center"
                    )
                    continue
                axes.bar(x, cell["mean"], width * 0.92, color=colour, alpha=0.75)
                dots = list(cell["by_seed"].values())
                axes.plot([x] * len(dots), dots, "o", ms=4, mfc="white", mec=colour)
                top = max(dots)
                axes.text(x, top, f"{cell['mean']:.2f}x\n", ha="center", va="bottom")
        axes.axhline(1.0, color="#444444", lw=1)
        axes.set_xticks(range(len(rows)), [label for _, label in rows])
        axes.set_ylabel(f"{reference} / arm (above 1: the arm is better)")
        axes.set_title(f"at equal learner steps, against {reference}")
        axes.margins(y=0.2)
        axes.set_ylim(bottom=0)
        _legend(axes, others)
    return figure


def breakdown(found: Mapping[str, Any]) -> Figure | None:
    """Draws where an actor's step goes, one stacked bar an arm."""
    bars = {arm: found["by_arm"][arm]["breakdown_us"] for arm in found["arms"]}
    figure = _stacked(bars, timing.STAGES, _STAGE_COLOURS, "us")
    if figure is not None:
        axes = figure.axes[0]
        axes.set_xlabel("wall time per environment step (microseconds)")
        axes.set_title("where an actor's time goes")
    return figure


def energy_by_role(found: Mapping[str, Any]) -> Figure | None:
    """Draws the energy of a whole run by role, one stacked bar an arm."""
    bars = {
        arm: {role: 1000 * kwh for role, kwh in cell["kwh_by_role"].items()}
        for arm, cell in found["by_arm"].items()
    }
    figure = _stacked(bars, cpu_times.ROLES, _ROLE_COLOURS, "Wh")
    if figure is not None:
        axes = figure.axes[0]
        axes.set_xlabel("energy of a whole run (Wh), divided by CPU time")
        axes.set_title("who the machine worked for")
    return figure


def _stacked(
    bars: Mapping[str, Mapping[str, float]],
    parts: Sequence[str],
    part_colours: Sequence[str],
    unit: str,
) -> Figure | None:
    if not any(bars.values()):
        return None
    figure = Figure(figsize=(9, 1.4 + 0.6 * len(bars)), layout="constrained")
    axes = figure.subplots()
    left = np.zeros(len(bars))
    for part, colour in zip(parts, part_colours):
        widths = np.array([bar.get(part, 0.0) for bar in bars.values()])
        if widths.any():
            axes.barh(
                range(len(bars)),
                widths,
                left=left,
                color=colour,
                label=part,
                edgecolor="white",
                height=0.65,
            )
        left += widths
    for place, (total, bar) in enumerate(zip(left, bars.values())):
        text = f" {_short(total)} {unit}" if bar else " not measured"
        axes.text(total, place, text, va="center", fontsize=9)
    axes.set_yticks(range(len(bars)), list(bars))
    axes.invert_yaxis()
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.12)
    axes.legend(
        ncols=len(parts), loc="upper center", bbox_to_anchor=(0.5, -0.3), fontsize=8
    )
    return figure


def traffic(found: Mapping[str, Any]) -> Figure | None:
    """Draws bytes sent and staleness, one bar an arm."""
    panels = (
        ("bytes_sent", 1e-6, "policies sent in a run (MB)"),
        ("staleness", 1.0, "staleness of the actors' policy (learner steps)"),
    )
    cells = found["by_arm"]
    if all(cells[arm][key]["mean"] is None for key, *_ in panels for arm in cells):
        return None
    figure = Figure(figsize=(11, 1.2 + 0.5 * len(cells)), layout="constrained")
    for axes, (key, scale, label) in zip(figure.subplots(1, 2), panels):
        for place, (arm, colour) in enumerate(colours(found["arms"]).items()):
            value = cells[arm][key]["mean"]
            if value is None:
                axes.text(0, place, " not measured", va="center", fontsize=9)
                continue
            axes.barh(place, value * scale, color=colour, alpha=0.75, height=0.6)
            axes.text(value * scale, place, f" {value * scale:.3g}", va="center")
        axes.set_yticks(range(len(cells)), list(cells))
        axes.set_ylim(len(cells) - 0.5, -0.5)
        axes.set_xlabel(label)
        axes.grid(axis="y", visible=False)
        axes.margins(x=0.15)
        axes.set_xlim(left=0)
    return figure


def _legend(axes: Any, arms: Mapping[str, str]) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=c, alpha=0.75, label=arm) for arm, c in arms.items()]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _say(axes: Any, text: str) -> None:
    axes.text(0.5, 0.5, text, ha="center", transform=axes.transAxes, color="#666666")
