"""The figures of a comparison as PNG files; matplotlib's Agg, no display needed.

Colours are those of Okabe and Ito, told apart with any kind of colour vision; arms have
their own line style and hatch as well, so that a grey print can be read.
"""

from __future__ import annotations

import colorsys
import contextlib
import itertools
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from acme_quant.acting import timing
from acme_quant.launch.nodes import ENERGY_ROLES
from acme_quant.launch.reports import page
from acme_quant.launch.reports.findings import Findings, Level
from acme_quant.launch.reports.runs import Run

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, YELLOW, BLACK = "#E69F00", "#56B4E9", "#F0E442", "#000000"
GREY = "#666666"
OKABE_ITO = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, YELLOW, BLACK)
_KNOWN = {"float32": BLUE, "int8": VERMILLION, "acme": BLACK, "float16": GREEN}
_LINES = ("-", "--", "-.", ":")
_STAGE_COLOURS = (GREEN, VERMILLION, YELLOW, SKY, PURPLE, "#BBBBBB", "#666666")
_ROLE_COLOURS = (
    *(VERMILLION, BLUE, ORANGE, GREEN, SKY, PURPLE, YELLOW)[: len(ENERGY_ROLES) - 1],
    "#BBBBBB",  # Other programs.
)
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
_FEW = 5
# More labels than that over one place stand upright.
_SIDE_BY_SIDE = 3


def draw(
    folder: pathlib.Path, runs: Sequence[Run], found: Findings
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


def style() -> contextlib.AbstractContextManager[None]:
    """Returns the context in which all figures are drawn."""
    return matplotlib.rc_context(_STYLE)


def palette() -> Iterator[str]:
    """Yields Okabe and Ito's colours, then hues between them, without end."""
    yield from OKABE_ITO
    for index in itertools.count(1):
        # Steps of the golden section come back to no hue.
        rgb = colorsys.hsv_to_rgb(index * 0.618034 % 1.0, 0.7, 0.6)
        yield "#" + "".join(f"{round(255 * part):02X}" for part in rgb)


def colours(arms: Sequence[str]) -> dict[str, str]:
    """Returns a colour for each arm: the usual arms always have the same."""
    taken = {_KNOWN.get(arm) for arm in arms}
    free = (colour for colour in palette() if colour not in taken)
    return {arm: _KNOWN.get(arm) or next(free) for arm in arms}


def returns(runs: Sequence[Run], found: Findings) -> Figure | None:
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
    styles = dict(zip(colours(found.arms).items(), itertools.cycle(_LINES)))
    for axes, (column, scale, label) in zip(panels, axes_of):
        for (arm, colour), line in styles.items():
            own = [run for run in runs if run.arm == arm]
            _curves(axes, own, (column, scale), colour, line)
        axes.set_xlabel(label)
        axes.set_title(f"return over {label.split(' (')[0]}")
        axes.set_xlim(left=0)
        if not has_points(axes):
            say_not_measured(axes)
    for level in found.levels:
        _mark_level(panels[0], level)
    panels[0].set_ylabel("evaluation return (sum of rewards)")
    handles = [
        Line2D([], [], color=colour, ls=line, lw=2.2, label=arm)
        for (arm, colour), line in styles.items()
    ]
    panels[0].legend(handles=handles, loc="best")
    return figure


def _mark_level(axes: Axes, level: Level) -> None:
    axes.axhline(level.return_, color="#999999", lw=0.7, ls=":")
    axes.annotate(
        level.name,
        (1.0, level.return_),
        xycoords=("axes fraction", "data"),
        fontsize=7,
        color="#666666",
        va="center",
    )


def _curves(
    axes: Axes, runs: Sequence[Run], over: tuple[str, float], colour: str, line: str
) -> None:
    """Draws each run thin, and mean and range where all finished ones have values.

    Args:
      axes: where to.
      runs: of one arm.
      over: column of the x axis, and what it is multiplied by.
      colour: of the arm.
      line: style of the mean.
    """
    finished = []
    for run in runs:
        x, y = run.evaluations[over[0]] * over[1], run.evaluations["episode_return"]
        known = ~(np.isnan(x) | np.isnan(y))
        x, y = x[known], y[known]
        if not len(x):
            continue
        # A line through one point shows nothing, through a few it hides how few.
        mark, alpha = ("o", 0.9) if len(x) <= _FEW else ("", 0.4)
        (drawn,) = axes.plot(x, y, marker=mark, ms=5, color=colour, lw=0.7, alpha=alpha)
        drawn.set_clip_on(not mark)
        if run.finished:
            finished.append((x, y))
    first = max((x[0] for x, _ in finished), default=0.0)
    last = min((x[-1] for x, _ in finished), default=0.0)
    if first >= last:
        return
    grid = np.linspace(first, last, _POINTS)
    stack = np.array([np.interp(grid, x, y) for x, y in finished])
    axes.plot(grid, stack.mean(0), line, color=colour, lw=2.2)
    if len(finished) > 1:
        axes.fill_between(grid, stack.min(0), stack.max(0), color=colour, alpha=0.12)


def time_to_level(found: Findings) -> Figure | None:
    """Draws the minutes to each level as bars, the seeds as dots."""
    levels = found.levels
    if not levels:
        return None
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    axes = figure.subplots()
    arms = colours(found.arms)
    width = 0.8 / len(arms)
    for i, (arm, colour) in enumerate(arms.items()):
        for place, level in enumerate(levels):
            cell = level.arms[arm]
            x = place + (i - (len(arms) - 1) / 2) * width
            if cell.mean is None:
                axes.text(
                    x, 0, " never\n reached", rotation=90, ha="center", fontsize=7
                )
                continue
            axes.bar(x, cell.mean / 60, width * 0.92, color=colour, alpha=0.75)
            dots = [s / 60 for s in cell.seconds.values() if s is not None]
            axes.plot([x] * len(dots), dots, "o", ms=4, mfc="white", mec=colour)
            if cell.reached < cell.of:
                text = f"{cell.reached} of {cell.of}"
                axes.text(x, max(dots), f"{text}\n", ha="center", va="bottom", size=7)
    axes.set_xticks(
        range(len(levels)), [f"{v.name}\n({v.return_:.4g})" for v in levels]
    )
    axes.set_xlim(-0.55, len(levels) - 0.45)
    axes.set_xlabel("level (share of float32's best return)")
    axes.set_ylabel("minutes from launch")
    axes.set_title("time to a level: bars are means, dots are seeds")
    axes.set_ylim(bottom=0)
    _legend(axes, arms)
    return figure


def whole_run(found: Findings) -> Figure | None:
    """Draws the ratios at equal learner steps, one panel a reference."""
    rows = (
        ("speedup", "time"),
        ("training_speedup", "time without start-up"),
        ("kwh_ratio", "energy (kWh)"),
    )
    pairs = found.pairs
    references = [
        name
        for name in found.references
        if any(
            cell.by_seed
            for key, _ in rows
            for cell in getattr(found.whole_run, key)[name].values()
        )
        and any(reference == name for reference, _ in pairs)
    ]
    if not references:
        return None
    figure = Figure(figsize=(6.5 * len(references), 3.8), layout="constrained")
    arms = colours(found.arms)
    for axes, reference in zip(
        np.atleast_1d(figure.subplots(1, len(references))), references
    ):
        others = {arm: c for arm, c in arms.items() if (reference, arm) in pairs}
        width = 0.8 / len(others)
        turn = 90 if len(others) > _SIDE_BY_SIDE else 0
        for i, (arm, colour) in enumerate(others.items()):
            for place, (key, _) in enumerate(rows):
                cell = getattr(found.whole_run, key)[reference][arm]
                x = place + (i - (len(others) - 1) / 2) * width
                if cell.mean is None:
                    axes.text(
                        x, 0.02, " not measured", rotation=90, size=7, ha="center"
                    )
                    continue
                axes.bar(x, cell.mean, width * 0.92, color=colour, alpha=0.75)
                dots = list(cell.by_seed.values())
                axes.plot([x] * len(dots), dots, "o", ms=4, mfc="white", mec=colour)
                top = max(dots)
                number = f"{cell.mean:.2f}x"
                text = f"  {number}" if turn else f"{number}\n"
                axes.text(x, top, text, ha="center", va="bottom", rotation=turn)
        axes.axhline(1.0, color="#444444", lw=1)
        axes.set_xticks(range(len(rows)), [label for _, label in rows])
        axes.set_ylabel(f"{reference} / arm (above 1: the arm is better)")
        axes.set_title(f"at equal learner steps, against {reference}")
        axes.margins(y=0.2)
        axes.set_ylim(bottom=0)
        _legend(axes, others)
    return figure


def breakdown(found: Findings) -> Figure | None:
    """Draws where an actor's step goes, one stacked bar an arm."""
    bars = {arm: found.by_arm[arm].breakdown_us for arm in found.arms}
    figure = stacked(bars, timing.STAGES, _STAGE_COLOURS, "us")
    if figure is not None:
        axes = figure.axes[0]
        axes.set_xlabel("wall time per environment step (microseconds)")
        axes.set_title("where an actor's time goes")
    return figure


def energy_by_role(found: Findings) -> Figure | None:
    """Draws the energy of a whole run by role, one stacked bar an arm."""
    bars = {
        arm: {role: 1000 * kwh for role, kwh in cell.kwh_by_role.items()}
        for arm, cell in found.by_arm.items()
    }
    figure = stacked(bars, ENERGY_ROLES, _ROLE_COLOURS, "Wh")
    if figure is not None:
        axes = figure.axes[0]
        axes.set_xlabel("energy of a whole run (Wh), divided by CPU time")
        axes.set_title("who the machine worked for")
    return figure


def stacked(
    bars: Mapping[str, Mapping[str, float]],
    parts: Sequence[str],
    part_colours: Iterable[str],
    unit: str,
) -> Figure | None:
    """Draws one horizontal bar an arm, of the parts that it has.

    Args:
      bars: arm -> part -> size.
      parts: in their order.
      part_colours: of the first parts; the palette's are those of the rest.
      unit: of the sizes.
    """
    if not any(any(bar.values()) for bar in bars.values()):
        return None
    figure = Figure(figsize=(9, 1.4 + 0.6 * len(bars)), layout="constrained")
    axes = figure.subplots()
    left = np.zeros(len(bars))
    for part, colour in zip(parts, itertools.chain(part_colours, palette())):
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


def traffic(found: Findings) -> Figure | None:
    """Draws bytes sent and staleness, one bar an arm."""
    panels = (
        ("bytes_sent", 1e-6, "policies sent in a run (MB)"),
        ("staleness", 1.0, "staleness of the actors' policy (learner steps)"),
    )
    cells = found.by_arm
    if all(
        getattr(cells[arm], key).mean is None for key, *_ in panels for arm in cells
    ):
        return None
    figure = Figure(figsize=(11, 1.2 + 0.5 * len(cells)), layout="constrained")
    for axes, (key, scale, label) in zip(figure.subplots(1, 2), panels):
        for place, (arm, colour) in enumerate(colours(found.arms).items()):
            value = getattr(cells[arm], key).mean
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


def _legend(axes: Axes, arms: Mapping[str, str]) -> None:
    handles = [Patch(color=c, alpha=0.75, label=arm) for arm, c in arms.items()]
    axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0))


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def has_points(axes: Axes) -> bool:
    """Returns whether a line of the panel has a value."""
    return any(np.isfinite(line.get_ydata()).any() for line in axes.lines)


def say_not_measured(axes: Axes) -> None:
    """Writes into an empty panel that nothing was measured."""
    where = axes.transAxes
    axes.text(0.5, 0.5, page.NOT_MEASURED, ha="center", transform=where, color=GREY)
