"""Renders the tables of the pages from data: no number is copied by hand.

    python docs/tables.py     # after data changed: writes the pages again

A page says where a table stands: between `<!-- table: NAME -->` and `<!-- end -->`.
A file of results/data holds what the product's commands wrote (`bench --json`, reports
of `compare`), with command, machine, commit and load; null is what nobody noted.
"""

from __future__ import annotations

import ast
import json
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]
DATA = ROOT / "docs" / "results" / "data"
MARK = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end -->)", re.S)
MOST_ROWS = 12
UNKNOWN = "–"

Row = dict[str, Any]  # One measured thing, as JSON has it.
Cells = Sequence[object]

ENGINES = ("int8", "float32", "acme_tf", "onnxruntime_float32", "onnxruntime_int8")
ENGINES += ("tflite_float32", "tflite_int8")
ARMS = ("acme", "float32", "int8")
# The README's drawing from left to right, and then what holds it together.
FOLDERS = ("lowering", "policy", "kernels", "publishing", "acting", "environments")
FOLDERS += ("replay", "peers", "records", "settings", "agents", "launch", "export")
FOLDERS += ("bench",)
LAUNCH = ("settings", "nodes", "running", "checkpoints", "reports", "commands")
WALKER = "dm_control:walker:stand"
STAGES = ("environment", "inference", "exploration", "adder", "update", "waiting")


def rows(file: str, **equal: object) -> list[Row]:
    """Returns the rows of a file of data that have these values."""
    found = json.loads((DATA / f"{file}.json").read_text())["rows"]
    return [row for row in found if all(row.get(k) == v for k, v in equal.items())]


def one(file: str, **equal: object) -> Row:
    """Returns the only row that has these values."""
    (row,) = rows(file, **equal)
    return row


def show(value: object) -> str:
    """Returns a cell: numbers with separators, nothing as a dash."""
    if value is None:
        return UNKNOWN
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def times(value: float | None) -> str:
    """Returns a factor."""
    return UNKNOWN if value is None else f"{value:.2f}"


def unique(found: Sequence[Row], *names: str) -> list[tuple]:
    """Returns the different values of some columns, in their order."""
    return list(dict.fromkeys(tuple(row[name] for name in names) for row in found))


def learning_dqn() -> list[Cells]:
    """First evaluation at the task's level, by seed."""
    found = [["task", "arm", "seed 0", "seed 1", "seed 2"]]
    for task, arm in unique(rows("learning_dqn"), "task", "arm"):
        own = rows("learning_dqn", task=task, arm=arm)
        cells = [f"{r['actor_steps']:,} steps, {r['wall_s']} s" for r in own]
        found.append([task, arm, *cells])
    return found


def learning_cartpole() -> list[Cells]:
    """D4PG on cartpole balance: when each arm passed 900."""
    head = ["arm", "steps to 900", "seconds to 900", "steps/s", "last return"]
    names = ("arm", "first_900_actor_steps", "first_900_wall_s", "steps_per_s")
    return [head] + [
        [row[name] for name in (*names, "final_return")]
        for row in rows("learning_cartpole")
    ]


def learning_walker_reacher() -> list[Cells]:
    """Returns over steps, by task, arm and seed."""
    columns = unique(rows("learning_walker_reacher"), "task", "arm", "seed")
    head = ["steps up to", *(f"{task} {arm}, {seed}" for task, arm, seed in columns)]
    found: list[Cells] = [head]
    for up_to in range(10_000, 100_001, 10_000):
        cells = [
            rows("learning_walker_reacher", task=t, arm=a, seed=s, up_to=up_to)
            for t, a, s in columns
        ]
        found.append([up_to, *(c[0]["episode_return"] if c else None for c in cells)])
    return found


def speed() -> list[Cells]:
    """Ratios of whole runs at equal learner steps."""
    head = ["set", "Acme / float32", "Acme / int8", "Acme / int8, training alone"]
    found: list[Cells] = [[*head, "float32 / int8"]]
    for (name,) in unique(rows("compare"), "set"):
        ours, int8 = (one("compare", set=name, arm=arm) for arm in ("float32", "int8"))
        cells = [ours["speedup"]["acme"], int8["speedup"]["acme"]]
        cells += [int8["training_speedup"]["acme"], int8["speedup"]["float32"]]
        found.append([name, *(times(cell["mean"]) for cell in cells)])
    return found


def speed_returns() -> list[Cells]:
    """Best smoothed return, mean and standard deviation over seeds."""
    found: list[Cells] = [["set", "acme", "float32", "int8"]]
    for (name,) in unique(rows("compare"), "set"):
        cells = [one("compare", set=name, arm=arm)["best_return"] for arm in ARMS]
        if all(cells):
            found.append([name, *map(with_spread, cells)])
    return found


def with_spread(cell: Row) -> str:
    """Returns mean and standard deviation."""
    return f"{cell['mean']} ± {cell['std']}"


def speed_levels() -> list[Cells]:
    """Seconds from launch to 90 % of float32's best return."""
    found: list[Cells] = [["set", "return", *ARMS]]
    at = "90%"
    for name, level in unique(rows("compare_levels", name=at), "set", "return"):
        cells = [one("compare_levels", set=name, name=at, arm=arm) for arm in ARMS]
        reached = [f"{with_spread(c)} ({c['reached']} of {c['of']})" for c in cells]
        found.append([name, level, *reached])
    return found


def breakdown(arm: str) -> list[Cells]:
    """Microseconds of an actor's stages per environment step."""
    found: list[Cells] = [["set", *STAGES]]
    for row in rows("compare", arm=arm):
        found.append([row["set"], *(row["breakdown_us"][stage] for stage in STAGES)])
    return found


def speed_repeated() -> list[Cells]:
    """The two sets that were run again."""
    head = ["set", "arm", "Acme / arm", "seconds to the return", "us a step, busy"]
    found: list[Cells] = [[*head, "us a step, waiting"]]
    for row in rows("compare_repeated"):
        cells = [row["set"], row["arm"], times(row["speedup"].get("acme"))]
        cells += [with_spread(row["seconds_to_level"]), row["us_without_waiting"]]
        found.append([*cells, row["us_waiting"]])
    return found


def energy() -> list[Cells]:
    """Ratios of energy at equal learner steps, and megabytes sent."""
    head = ["set", "Acme kWh / float32", "Acme kWh / int8", "MB, float32", "MB, int8"]
    found: list[Cells] = [head]
    for (name,) in unique(rows("compare"), "set"):
        pair = [one("compare", set=name, arm=arm) for arm in ("float32", "int8")]
        cells = [times(row["kwh_ratio"]["acme"]["mean"]) for row in pair]
        found.append([name, *cells, *(row["bytes_sent_mb"] for row in pair)])
    return found


def calls(name: str, key: str, **equal: object) -> list[Cells]:
    """Microseconds of a policy call by engine."""
    there = [e for e in ENGINES if rows(name, engine=e)]
    found: list[Cells] = [[key, *there]]
    for (value,) in unique(rows(name, **equal), key):
        cells = [one(name, **equal, **{key: value}, engine=e)["us"] for e in there]
        found.append([value, *cells])
    return found


def policy_batches() -> list[Cells]:
    """Int8's time against ONNX Runtime's int8 and our float32, by batch."""
    sizes = (1, 8, 32, 256)
    head = ["hidden", *(f"to ORT int8, {b}" for b in sizes)]
    found: list[Cells] = [head + [f"to our float32, {b}" for b in sizes]]
    for (hidden,) in unique(rows("policy_call"), "hidden"):
        cells = [hidden]
        for other in ("onnxruntime_int8", "float32"):
            for batch in sizes:
                here = rows("policy_call", batch=batch, hidden=hidden)
                us = {row["engine"]: row["us"] for row in here}
                cells.append(times(us["int8"] / us[other]))
        found.append(cells)
    return found


def policy_name(hidden: int) -> str:
    """Returns the policy's size as people say it."""
    return f"3x{hidden}" if hidden else "Atari"


def actor_loop() -> list[Cells]:
    """Microseconds of an environment step in one or two actors."""
    found: list[Cells] = [
        ["task", "policy", "actors", *ARMS, "Acme / int8", "float32 / int8"]
    ]
    places = unique(rows("actor_loop"), "task", "hidden", "actors", "envs_per_actor")
    for task, hidden, actors, envs in places:
        us = {
            row["arm"]: row["us_step"]
            for row in rows("actor_loop", task=task, hidden=hidden, actors=actors)
        }
        acme = times(us["acme"] / us["int8"]) if "acme" in us else UNKNOWN
        name = task if envs == 1 else f"{task} x {envs}"
        cells = [name, policy_name(hidden), actors, *(us.get(arm) for arm in ARMS)]
        found.append([*cells, acme, times(us["float32"] / us["int8"])])
    return found


def actor_parts() -> list[Cells]:
    """Where the time of an int8 actor's step goes, in microseconds."""
    parts = ("environment", "policy", "adder", "update", "cpu")
    found: list[Cells] = [["task", "policy", "actors", *parts]]
    for row in rows("actor_loop", arm="int8"):
        cells = [row["task"], policy_name(row["hidden"]), row["actors"]]
        found.append([*cells, *(row[f"us_{part}"] for part in parts)])
    return found


def actor_start() -> list[Cells]:
    """Seconds to the first action and megabytes of memory, one actor."""
    head = ["task", "policy", *(f"{arm}, s" for arm in ARMS)]
    found: list[Cells] = [[*head, *(f"{arm}, MB" for arm in ARMS)]]
    for task, hidden in unique(rows("actor_loop", actors=1), "task", "hidden"):
        own = {
            row["arm"]: row
            for row in rows("actor_loop", task=task, hidden=hidden, actors=1)
        }
        cells = [own.get(a, {}).get(k) for k in ("startup_s", "rss_mb") for a in ARMS]
        found.append([task, policy_name(hidden), *cells])
    return found


def listed(name: str, *columns: str, **equal: object) -> list[Cells]:
    """Some columns of the data as they are."""
    head = [column.replace("_", " ") for column in columns]
    return [head, *([row[c] for c in columns] for row in rows(name, **equal))]


def publishing() -> list[Cells]:
    """Milliseconds of each stage by transport."""
    head = ["hidden", "quantizer", "stage", "shared memory, ms", "Courier, ms"]
    found: list[Cells] = [head]
    for key in unique(rows("publishing"), "hidden", "quantizer", "stage"):
        same = dict(zip(("hidden", "quantizer", "stage"), key, strict=True))
        by = {row["transport"]: row["ms"] for row in rows("publishing", **same)}
        stage = key[2].replace("_", " ")
        found.append([*key[:2], stage, by["shared_memory"], by["courier"]])
    return found


def verdict(aim: Row) -> str:
    """Returns met, missed, or at the edge: by the runs seen that keep the bound."""
    seen = aim["seen"]
    if "most" in aim:
        kept = [value <= aim["most"] for value in seen]
    else:
        kept = [value >= aim["least"] for value in seen]
    return "met" if all(kept) else "at the edge" if any(kept) else "missed"


def aims(page: str) -> list[Cells]:
    """Each promise of a page, what was seen, and whether it holds."""
    found: list[Cells] = [["promise", "aim", "seen", ""]]
    for aim in rows("aims", page=page):
        bound = f"≤ {aim['most']}" if "most" in aim else f"≥ {aim['least']}"
        seen = ", ".join(map(show, aim["seen"]))
        found.append([aim["promise"], bound, seen, verdict(aim)])
    return found


def worth_it() -> list[Cells]:
    """The README's answer: six situations."""
    head = ["When", "int8 against our float32", "against Acme's actor"]
    found: list[Cells] = [[*head, "bytes of policies", "More"]]
    for what, name in (
        ("Actors are the limit, policy 3x256", "DQN CartPole-v1"),
        ("Actors are the limit, policy 3x2048", "DQN CartPole-v1, 3x2048"),
        ("The learner is the limit", "learner-bound: D4PG cartpole balance"),
    ):
        int8 = one("compare", set=name, arm="int8")
        whole = one("compare", set=name, arm="float32")["bytes_sent_mb"]
        cells = [f"{int8['speedup'][r]['mean']:.2f} x" for r in ("float32", "acme")]
        share = f"{int8['bytes_sent_mb'] / whole:.0%}"
        found.append([f"{what}: whole run", *cells, share, link("speed")])
    for hidden in (256, 2048):
        us = {r["engine"]: r["us"] for r in rows("policy_call", hidden=hidden, batch=1)}
        cells = [f"{us[e] / us['int8']:.1f} x" for e in ("float32", "acme_tf")]
        what = f"One policy call, 3x{hidden}"
        found.append([what, *cells, UNKNOWN, link("policy_call")])
    us = {r["arm"]: r["us_step"] for r in rows("actor_loop", task=WALKER, hidden=2048)}
    cells = [f"{us[arm] / us['int8']:.1f} x" for arm in ("float32", "acme")]
    what = "An actor's step, walker stand, 3x2048"
    return [*found, [what, *cells, UNKNOWN, link("actor_loop")]]


def folders(names: Sequence[str], up: str = "") -> list[Cells]:
    """Each folder with the first sentence of its docstring; `up` leads to the root."""
    found: list[Cells] = [["folder", "what"]]
    for name in names:
        inside = name.partition("/")[0] in ("agents", "launch")
        path = name if inside else f"acme_quant/{name}"
        tree = ast.parse((ROOT / path / "__init__.py").read_text())
        told = " ".join(ast.get_docstring(tree).split("\n\n")[0].split())
        found.append([f"[{path}]({up}{path})", re.split(r"(?<=\.)\s", told)[0]])
    return found


def link(page: str) -> str:
    """Returns a link to a page, from the README."""
    return f"[{page}](docs/results/{page}.md)"


TABLES: dict[str, Callable[[], list[Cells]]] = {
    "worth_it": worth_it,
    "folders": lambda: folders(FOLDERS),
    "launch": lambda: folders([f"launch/{name}" for name in LAUNCH], "../"),
    "learning_dqn": learning_dqn,
    "learning_cartpole": learning_cartpole,
    "learning_walker_reacher": learning_walker_reacher,
    "speed": speed,
    "speed_returns": speed_returns,
    "speed_levels": speed_levels,
    "speed_repeated": speed_repeated,
    "breakdown_int8": lambda: breakdown("int8"),
    "breakdown_float32": lambda: breakdown("float32"),
    "breakdown_acme": lambda: breakdown("acme"),
    "energy": energy,
    "policy_call": lambda: calls("policy_call", "hidden", batch=1),
    "policy_batches": policy_batches,
    "policy_atari": lambda: calls("policy_call_atari", "batch"),
    "actor_loop": actor_loop,
    "actor_parts": actor_parts,
    "actor_start": actor_start,
    "actor_step_dqn": lambda: listed(
        "actor_step_dqn", "run", "arm", "us_step", "us_cpu", "us_policy"
    ),
    "actor_scale": lambda: listed(
        "actor_scale", "actors", "steps_per_s", "us_cpu", "us_replay", "us_adder"
    ),
    "adder": lambda: listed("adder", "arm", "us_step"),
    "publishing": publishing,
    "publishing_scale": lambda: listed(
        "publishing_scale", "transport", "hidden", "clients", "pulls_per_s", "p99_ms"
    ),
    **{
        f"aims of {page}": lambda page=page: aims(page)
        for (page,) in unique(rows("aims"), "page")
    },
}


def about(files: Sequence[str]) -> list[Cells]:
    """Commit and load of some files of data."""
    found: list[Cells] = [["data", "commit", "load"]]
    for name in files:
        data = json.loads((DATA / f"{name}.json").read_text())
        told = [data[key] or "not noted" for key in ("commit", "load")]
        found.append([f"`docs/results/data/{name}.json`", *told])
    return found


def markdown(name: str) -> str:
    """Returns a table as Markdown; `about FILE` tells where numbers come from."""
    kind, _, files = name.partition(" ")
    found = about(files.split(", ")) if kind == "about" else TABLES[name]()
    head, *body = ([show(cell) for cell in cells] for cells in found)
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def render(text: str) -> str:
    """Returns a page with its tables made again."""
    return MARK.sub(lambda found: found[1] + markdown(found[2]) + found[3], text)


def pages() -> list[pathlib.Path]:
    """Returns the pages that hold tables."""
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [path for path in found if MARK.search(path.read_text())]


if __name__ == "__main__":
    for path in pages():
        path.write_text(render(path.read_text()))
