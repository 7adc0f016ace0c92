"""The result of `acme-quant balance` as JSON, one figure and one page."""

from __future__ import annotations

import dataclasses
import html
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from acme_quant.launch.reports import figures, operating_point, page
from acme_quant.launch.reports.findings import OTHERS_LIMIT
from acme_quant.launch.reports.operating_point import Advice, Point

FORMAT = 1
_LIMIT_MARKS = {
    "actors": "o",
    "learner": "s",
    "replay": "^",
    "publishing": "D",
    "none": "*",
    None: "x",
}


@dataclasses.dataclass(frozen=True)
class Findings:
    """Everything that the report of a balance says, by number format where it says."""

    problems: Sequence[str]
    points: Sequence[Point]
    recommendations: Mapping[str, Advice | None]

    def to_json(self) -> dict[str, Any]:
        """Returns all of it as JSON can hold it."""
        return {
            "format": FORMAT,
            "methods": operating_point.METHODS,
            **dataclasses.asdict(self),
            "points": [point.to_json() for point in self.points],
        }


def write(
    folder: pathlib.Path, points: Sequence[Point], about: Mapping[str, Any]
) -> Findings:
    """Writes the report into `folder` and returns its findings.

    Args:
      folder: where to.
      points: what the runs measured.
      about: command and host.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = findings(points, int(about["host"]["cores"] or 1))
    (folder / "summary.json").write_text(
        json.dumps({**found.to_json(), "about": about}, indent=2) + "\n"
    )
    picture = folder / "balance.png"
    with figures.style():
        figures.save(draw(points, found), picture)
    parts = [
        page.problems(found.problems),
        *(_recommendation(*pair) for pair in found.recommendations.items()),
        page.picture(
            {"balance": picture},
            "balance",
            "Marks tell the limit: circle actors, square learner, triangle replay, "
            "diamond publishing, star none, cross unknown. The ring is the knee.",
        ),
        _table(points),
        _methods(),
        f"<pre>{html.escape(json.dumps(about, indent=2))}</pre>",
    ]
    text = page.page("How many actors this machine can use", parts)
    (folder / "balance.html").write_text(text)
    return found


def findings(points: Sequence[Point], cores: int) -> Findings:
    """Returns points, and knees and recommendations by number format."""
    formats = dict.fromkeys(point.quantizer for point in points)
    return Findings(
        problems=_problems(points),
        points=points,
        recommendations={
            name: operating_point.recommend(
                [point for point in points if point.quantizer == name], cores
            )
            for name in formats
        },
    )


def _problems(points: Sequence[Point]) -> list[str]:
    """Returns what a reader must know before any number, one sentence each."""
    found = []
    for point in points:
        name = f"{point.quantizer}, {point.actors} actors, batch {point.batch}"
        if point.steps_per_s is None:
            found.append(f"{name}: did not finish, or was too short to measure.")
        elif point.limit is None:
            found.append(
                f"{name}: who waits was not measured, so its limit is unknown."
            )
        if point.others is not None and point.others > OTHERS_LIMIT:
            found.append(
                f"{name}: {point.others:.0%} of the CPU time went to other programs, "
                "so its rates are not those of a free machine."
            )
    return found


def draw(points: Sequence[Point], found: Findings) -> Figure:
    """Draws throughput, waiting and efficiency over the number of actors."""
    figure = Figure(figsize=(14, 4.2), layout="constrained")
    speed, waits, watt = figure.subplots(1, 3)
    for name, colour in figures.colours(list(found.recommendations)).items():
        own = [point for point in points if point.quantizer == name]
        usual = [point for point in own if point.batch == own[0].batch]
        x = [point.actors for point in usual]
        speed.plot(x, _known(usual, "steps_per_s"), color=colour, label=name)
        for point in usual:
            if point.steps_per_s:
                mark = _LIMIT_MARKS[point.limit]
                speed.plot(point.actors, point.steps_per_s, mark, color=colour, ms=8)
        at = operating_point.knee(usual)
        if at is not None:
            speed.plot(at.actors, at.steps_per_s, "o", ms=17, mfc="none", mec=colour)
        waits.plot(
            x,
            _known(usual, "actors_wait", 100),
            "-o",
            color=colour,
            label=f"{name}: actors for the learner",
        )
        waits.plot(
            x,
            _known(usual, "learner_waits", 100),
            "--s",
            color=colour,
            label=f"{name}: learner for data",
        )
        watt.plot(x, _known(usual, "steps_per_watt_s"), "-o", color=colour, label=name)
    speed.set_ylabel("environment steps per second")
    speed.set_title("throughput")
    waits.set_ylabel("waiting (% of the time)")
    waits.set_title("who waits")
    watt.set_ylabel("environment steps per second and watt")
    watt.set_title("throughput per watt")
    for axes in (speed, waits, watt):
        axes.set_xlabel("actor processes")
        axes.margins(y=0.15)
        axes.set_ylim(bottom=0)
        axes.set_xticks(sorted({point.actors for point in points}))
        axes.legend(fontsize=8)
        if not figures.has_points(axes):
            figures.say_not_measured(axes)
    return figure


def _known(
    points: Sequence[Point], name: str, scale: float = 1.0
) -> list[float | None]:
    values = [getattr(point, name) for point in points]
    return [float("nan") if value is None else scale * value for value in values]


def sentence(advice: Advice | None) -> str:
    """Returns a recommendation in one line."""
    if advice is None:
        return "nothing to recommend: no run finished."
    parts = [f"--num_actors={advice.actors}"]
    if advice.samples_per_insert is not None:
        parts.append(f"--samples_per_insert={advice.samples_per_insert:.3g}")
    parts.append(f"--batch_size={advice.batch}")
    text = f"{' '.join(parts)} (limit at the knee: {advice.limit or 'unknown'}"
    if advice.actor_cores_per_learner_core is not None:
        ratio = advice.actor_cores_per_learner_core
        text += f"; {ratio:.2f} actor cores per learner core"
    return text + ")"


def _recommendation(name: str, advice: Advice | None) -> str:
    text = f'<p class="headline"><b>{html.escape(name)}</b>: '
    text += f"{html.escape(sentence(advice))}</p>"
    if advice:
        items = "".join(f"<li>{html.escape(t)}</li>" for t in advice.extrapolated)
        text += f"<p>Extrapolated, not measured:</p><ul>{items}</ul>"
    return text


def _table(points: Sequence[Point]) -> str:
    head = ["format", "actors", "batch", "steps/s", "learner steps/s", "limit"]
    head += ["actors wait", "learner waits", "quantizer works", "actor cores"]
    head += ["learner cores", "W", "steps/s per W"]
    rows = [
        (
            point.quantizer,
            str(point.actors),
            str(point.batch),
            page.number(point.steps_per_s),
            page.number(point.learner_steps_per_s),
            point.limit or "unknown",
            _percent(point.actors_wait),
            _percent(point.learner_waits),
            _percent(point.publishing),
            page.number(point.cores.get("actor"), digits=3),
            page.number(point.cores.get("learner"), digits=3),
            page.number(point.watts, digits=3),
            page.number(point.steps_per_watt_s, digits=3),
        )
        for point in points
    ]
    return page.table(head, rows, "one run each; methods below")


def _methods() -> str:
    items = operating_point.METHODS.items()
    lines = "".join(f"<li><b>{n}</b>: {html.escape(text)}</li>" for n, text in items)
    return f"<h2>How it was measured</h2><ul>{lines}</ul>"


def _percent(value: float | None) -> str:
    return page.NOT_MEASURED if value is None else f"{value:.0%}"
