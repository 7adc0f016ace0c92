"""The report as one HTML page that needs nothing but itself: no network, no script."""

from __future__ import annotations

import base64
import html
import json
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from acme_quant.launch.reports import measures
from acme_quant.launch.reports.findings import Findings, Reached
from acme_quant.launch.reports.measures import Ratio, Spread

_CSS = """
body{font:15px/1.5 system-ui,sans-serif;max-width:1150px;margin:2em auto;padding:0 1em;
color:#1a1a1a}
h1{font-size:1.5em}h2{margin-top:2em;border-bottom:1px solid #ccc}
table{border-collapse:collapse;margin:.8em 0}
th,td{padding:.3em .8em;text-align:right;border-bottom:1px solid #e3e3e3}
th:first-child,td:first-child,td.how,th.how{text-align:left}
td.how{color:#555;font-size:.85em;max-width:32em}
img{max-width:100%}figure{margin:1em 0}figcaption{color:#555;font-size:.9em}
.problems{background:#fff4e0;border-left:5px solid #D55E00;padding:.6em 1.2em}
.headline{font-size:1.15em}.none{color:#777}
pre{background:#f4f4f4;padding:.8em;overflow-x:auto;font-size:.85em}
"""
_CAPTIONS = {
    "return": (
        "Thin lines are runs, thick ones means over finished seeds, bands the range "
        "over seeds."
    ),
    "time_to_level": "Dots are seeds; a level never reached has no bar.",
    "whole_run": "Dots are seeds; the line is the reference itself.",
    "breakdown": (
        "Mean over the logged episodes of all actors of finished runs. The bars end at "
        "the loop's wall time: every moment belongs to one stage. Acme's own actor "
        "does some as one: its exploration is in inference, its wait in adder."
    ),
    "energy": (
        "The energy of the machine divided among roles by the CPU time of their "
        "processes; `other` is what other programs used."
    ),
    "traffic": "Means over finished runs.",
}
NOT_MEASURED = "not measured"


def render(
    title: str,
    found: Findings,
    figures: Mapping[str, pathlib.Path],
    about: Mapping[str, Any],
) -> str:
    """Returns the page of a comparison.

    Args:
      title: what was compared.
      found: the comparison's findings.
      figures: name -> PNG file.
      about: command, host and versions; shown as it is.
    """
    parts = [_headlines(found), problems(found.problems)]
    parts += ["<h2>Return</h2>", picture(figures, "return"), _returns(found)]
    parts += ["<h2>Time to a level</h2>", picture(figures, "time_to_level")]
    parts += [_levels(found)]
    parts += ["<h2>Whole run</h2>", picture(figures, "whole_run"), _whole_run(found)]
    parts += ["<h2>Where the time goes</h2>", picture(figures, "breakdown")]
    parts += [_method_line("breakdown")]
    parts += ["<h2>Energy</h2>", picture(figures, "energy"), _energy(found)]
    parts += ["<h2>Policies sent</h2>", picture(figures, "traffic"), _traffic(found)]
    parts += ["<h2>Runs</h2>", _runs(found), "<h2>How it was run</h2>", _about(about)]
    return page(title, parts)


def page(title: str, parts: Iterable[str]) -> str:
    """Returns a whole page around ready parts."""
    body = "\n".join(part for part in parts if part)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{html.escape(title)}</title><style>{_CSS}</style></head><body>"
        f"<h1>{html.escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def picture(figures: Mapping[str, pathlib.Path], name: str, caption: str = "") -> str:
    """Returns a figure with its PNG inside; a sentence when there is none."""
    if name not in figures:
        return f'<p class="none">No figure: {NOT_MEASURED}.</p>'
    data = base64.b64encode(figures[name].read_bytes()).decode()
    caption = html.escape(caption or _CAPTIONS.get(name, ""))
    return (
        f'<figure><img alt="{name}" src="data:image/png;base64,{data}">'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], how: str = "") -> str:
    """Returns a table; `how` stands beside each row's numbers.

    A row that brings its own method has one cell more than the head.
    """
    lines = ["<table><tr>", *(f"<th>{html.escape(cell)}</th>" for cell in head)]
    lines.append('<th class="how">how measured</th></tr>')
    for row in rows:
        cells, own = (row[:-1], row[-1]) if len(row) > len(head) else (row, how)
        lines.append("<tr>" + "".join(f"<td>{html.escape(c)}</td>" for c in cells))
        lines.append(f'<td class="how">{html.escape(own)}</td></tr>')
    return "".join([*lines, "</table>"])


def number(value: float | None, unit: str = "", digits: int = 4) -> str:
    """Returns a number as text, and what is not known as such."""
    return NOT_MEASURED if value is None else f"{value:.{digits}g}{unit}"


def with_spread(cell: Spread | Reached, unit: str = "", scale: float = 1.0) -> str:
    """Returns mean and standard deviation over seeds."""
    if cell.mean is None:
        return NOT_MEASURED
    text = f"{cell.mean * scale:.4g}"
    if cell.std is not None:
        text += f" ± {cell.std * scale:.3g}"
    return f"{text}{unit}"


def ratio(cell: Ratio) -> str:
    """Returns a ratio with its range over seeds."""
    if cell.mean is None:
        return NOT_MEASURED
    text, seeds = f"{cell.mean:.2f}x", len(cell.by_seed)
    if seeds == 1:
        return f"{text} (one seed)"
    return f"{text} ({cell.min:.2f} to {cell.max:.2f}, {seeds} seeds)"


def _headlines(found: Findings) -> str:
    lines = []
    for reference, arm in found.pairs:
        cell = found.whole_run.speedup[reference][arm]
        if cell.mean is None:
            continue
        word = "faster" if cell.mean >= 1.0 else "slower"
        kwh = ratio(found.whole_run.kwh_ratio[reference][arm])
        lines.append(
            f"<b>{html.escape(arm)}</b> against <b>{html.escape(reference)}</b>: "
            f"{ratio(cell)} in time at equal learner steps ({word}), "
            f"{kwh} in kWh; {_verdict(found, reference, arm)}."
        )
    return "".join(f'<p class="headline">{line}</p>' for line in lines)


def _verdict(found: Findings, reference: str, arm: str) -> str:
    """Says whether the arm's return is within one standard deviation."""
    own = found.by_arm[arm].final_return
    other = found.by_arm[reference].final_return
    if own.mean is None or other.mean is None:
        return "return " + NOT_MEASURED
    text = f"return {own.mean:.4g} against {other.mean:.4g}"
    if other.std is None:
        return text + " (one seed: no spread to judge it by)"
    inside = own.mean >= other.mean - other.std
    word = "within" if inside else "more than"
    end = "" if inside else " below"
    return f"{text}, {word} one standard deviation ({other.std:.3g}){end}"


def problems(sentences: Sequence[str]) -> str:
    """Returns a box of what must be read first; nothing when there is nothing."""
    if not sentences:
        return ""
    items = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    return f'<div class="problems"><b>Read first</b><ul>{items}</ul></div>'


def _returns(found: Findings) -> str:
    rows = [
        (key.replace("_", " "),)
        + tuple(with_spread(getattr(found.by_arm[arm], key)) for arm in found.arms)
        + (measures.METHODS[key],)
        for key in ("final_return", "best_return")
    ]
    return table(["", *found.arms], rows)


def _levels(found: Findings) -> str:
    if not found.levels:
        return f'<p class="none">Time to a level: {NOT_MEASURED}.</p>'
    pairs = found.pairs
    head = ["level", "return", *(f"{arm} (s)" for arm in found.arms)]
    head += [f"{reference} / {arm}" for reference, arm in pairs]
    rows = []
    for level in found.levels:
        row = [level.name, number(level.return_)]
        row += [_reached(level.arms[arm]) for arm in found.arms]
        row += [ratio(level.speedup[r][a]) for r, a in pairs]
        rows.append(row)
    how = measures.METHODS["time_to_level"]
    return table(head, rows, how) + _method_line("level")


def _reached(cell: Reached) -> str:
    if cell.mean is None:
        return "never reached" if cell.of else "no finished run"
    text = with_spread(cell)
    if cell.reached < cell.of:
        text += f" ({cell.reached} of {cell.of} seeds)"
    return text


def _whole_run(found: Findings) -> str:
    whole = found.whole_run
    rows = []
    for reference, arm in found.pairs:
        for key, label in (("speedup", "time"), ("training_speedup", "training time")):
            cell = getattr(whole, key)[reference][arm]
            rows.append(
                (f"{label}, {reference} / {arm}", ratio(cell), measures.METHODS[key])
            )
    seeds = []
    for seed, steps in whole.learner_steps.items():
        row = [str(seed), number(steps, digits=7)]
        for arm in found.arms:
            row.append(number(whole.seconds.get(arm, {}).get(seed)))
        seeds.append(row)
    head = ["seed", "learner steps L", *(f"{arm} (s)" for arm in found.arms)]
    how = "seconds from launch to L learner steps, from learner.csv"
    return table(["ratio", "value"], rows) + table(head, seeds, how)


def _energy(found: Findings) -> str:
    whole, how = found.whole_run, measures.METHODS["energy_ratio"]
    rows = []
    for reference, arm in found.pairs:
        for key, label in (("kwh_ratio", "kWh"), ("kg_co2_ratio", "kg CO2")):
            cell = getattr(whole, key)[reference][arm]
            rows.append((f"{label}, {reference} / {arm}", ratio(cell), how))
    own = [
        (
            arm,
            with_spread(found.by_arm[arm].kwh, scale=1000),
            with_spread(found.by_arm[arm].kg_co2, scale=1000),
        )
        for arm in found.arms
    ]
    methods = sorted({run.energy_method for run in found.runs})
    missing = sorted({r.energy_missing for r in found.runs} - {""})
    words = "; ".join(methods) + ". Not in it: " + ("; ".join(missing) or "unknown")
    return table(["ratio", "value"], rows) + table(
        ["whole run", "Wh", "g CO2"], own, words
    )


def _traffic(found: Findings) -> str:
    rows = [
        (label,)
        + tuple(
            with_spread(getattr(found.by_arm[arm], key), scale=scale)
            for arm in found.arms
        )
        + (how,)
        for key, label, scale, how in (
            ("policy_bytes", "kB a policy", 1e-3, "bytes of the last payload"),
            ("bytes_sent", "MB sent", 1e-6, measures.METHODS["bytes_sent"]),
            (
                "staleness",
                "staleness (learner steps)",
                1,
                measures.METHODS["staleness"],
            ),
            ("steps_per_s", "environment steps/s", 1, measures.METHODS["steps_per_s"]),
        )
    ]
    return table(["", *found.arms], rows)


def _runs(found: Findings) -> str:
    head = ["arm", "seed", "state", "seconds", "environment steps", "learner steps"]
    head += ["evaluations", "last return", "Wh"]
    rows = []
    for run in found.runs:
        kwh = run.kwh
        state = "finished" if run.finished else f"failed ({run.exit_code})"
        row = [run.arm, str(run.seed), state, number(run.wall_s)]
        row += [number(run.actor_steps, digits=9)]
        row += [number(run.learner_steps, digits=9), str(run.evaluations)]
        row += [number(run.final_return)]
        row += [number(None if kwh is None else 1000 * kwh)]
        rows.append(row)
    return table(head, rows, "the run's own files")


def _method_line(name: str) -> str:
    return f"<p>{html.escape(name)}: {html.escape(measures.METHODS[name])}.</p>"


def _about(about: Mapping[str, Any]) -> str:
    return f"<pre>{html.escape(json.dumps(about, indent=2, default=str))}</pre>"
