"""What a run came to: one line for a person, `summary.json` for programs."""

from __future__ import annotations

import json
from typing import Any

from acme_quant.launch.running.progress import Status
from acme_quant.launch.settings.config import Run
from acme_quant.records.energy import Energy


def write(
    run: Run, status: Status, steps_per_s: float, energy: Energy, exit_code: int
) -> dict[str, Any]:
    """Writes `summary.json` into the run's folder and returns its content."""
    result = {
        "exit_code": exit_code,
        "wall_s": round(status.wall_s, 1),
        "actor_steps": status.actor_steps,
        "learner_steps": status.learner_steps,
        "steps_per_s": round(steps_per_s, 1),
        "policy_version": status.policy_version,
        "evaluation_return": status.evaluation_return,
        "failed_episodes": status.failed_episodes,
        "kwh": energy.kwh,
        "kg_co2": energy.kg_co2,
        "energy_method": energy.method,
        "energy_missing": list(energy.missing),
        "energy_shares": dict(energy.shares),
        "workdir": str(run.workdir.resolve()),
    }
    (run.workdir / "summary.json").write_text(json.dumps(result, indent=2) + "\n")
    return result


def line(result: dict[str, Any]) -> str:
    """Returns the summary as one line; what is not known is called unknown."""
    value, kwh = result["evaluation_return"], result["kwh"]
    parts = [
        "done" if result["exit_code"] == 0 else "ended early",
        "return " + ("unknown" if value is None else f"{value:.1f}"),
        f"{result['actor_steps']} steps in {result['wall_s']:.0f} s",
        f"{result['steps_per_s']:.0f} steps/s",
        f"{result['learner_steps']} learner steps",
        "energy unknown" if kwh is None else f"{1000 * kwh:.2f} Wh",
        f"files in {result['workdir']}",
    ]
    return " | ".join(parts)
